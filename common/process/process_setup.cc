// SPDX-License-Identifier: Apache-2.0

#include "common/process/process_setup.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>  // defines __GLIBC__ where it applies
#include <csignal>
#include <cstdlib>
#include <new>

#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace lodestar::process {
namespace {

// Extra bytes that malloc() requests from the system each time it needs more memory.
constexpr int kTopPadBytes = 64 << 20;

// Writes `text` and exits with 1, without allocating memory.
[[noreturn]] void ExitSaying(absl::string_view text) {
  constexpr int kExitFailed = 1;
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(kExitFailed);
  _exit(kExitFailed);
}

void ExitWithoutMemory() {
  ExitSaying(
      "out of memory: give this process more memory, or divide the job among more machines\n");
}

// Handles SIGSEGV and SIGABRT. If malloc() fails inside a library, the library may abort or read
// address 0. To recognize that case, the handler asks the system for as much memory as malloc()
// would. It calls only functions that are allowed in signal handlers.
void OnCrash(int signal, siginfo_t* info, void* /*context*/) {
  constexpr size_t kProbeBytes = kTopPadBytes + (1 << 20);
  const void* const probe = mmap(nullptr, kProbeBytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
  if (probe == MAP_FAILED && errno == ENOMEM) ExitWithoutMemory();
  // SA_RESETHAND has removed this handler. A faulting instruction runs again after the handler, and
  // then ends the process. A signal from abort() or from another process must be sent again.
  const bool was_sent = info->si_code <= 0;
  if (was_sent) raise(signal);
}

void SayWhenMemoryRunsOut() {
  std::set_new_handler(ExitWithoutMemory);
#ifndef LODESTAR_SANITIZER  // sanitizers explain crashes themselves
  struct sigaction action = {};
  action.sa_sigaction = OnCrash;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_SIGINFO);
  for (const int signal : {SIGSEGV, SIGABRT}) sigaction(signal, &action, nullptr);
#endif
}

}  // namespace

void OpenStandardStreams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() returns the lowest free number, which is `descriptor`. Child processes inherit it.
    if (open("/dev/null", O_RDWR) != descriptor) {
      ExitSaying(
          "standard input, output or error is closed, and /dev/null cannot be opened in its "
          "place\n");
    }
  }
}

void SetUpProgram() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGCHLD, SIG_DFL);
  std::signal(SIGALRM, SIG_DFL);
  SayWhenMemoryRunsOut();
}

void SetUpMalloc() {
#ifdef __GLIBC__
  constexpr int kMmapThresholdBytes = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, kTopPadBytes);
  mallopt(M_ARENA_MAX, 1);
#endif
}

void RaiseMallocThresholds() {
  // Value of glibc's DEFAULT_MMAP_THRESHOLD_MAX. glibc compares it with the size of a block with
  // its header, rounded up to whole pages.
  constexpr size_t kLargestThreshold =
      4 * 1024 * 1024 * sizeof(long);  // NOLINT(google-runtime-int)
  constexpr size_t kRoundingBytes = 64 << 10;
  // `volatile` keeps the compiler from removing the call.
  void* volatile block = std::malloc(kLargestThreshold - kRoundingBytes);
  std::free(block);
}

void SetUpMutexes() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

void RaiseFileLimit() {
  // Maximum limit that is set. Some systems allow a thousand times as many files, which no program
  // of ours needs.
  constexpr rlim_t kMostFiles = 1 << 20;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kMostFiles));
  setrlimit(RLIMIT_NOFILE, &limit);
}

void FlushDenormals() {
#ifdef __SSE2__
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  // This bit makes the processor treat denormal inputs as zero too. <pmmintrin.h> has a name for
  // the bit, but only if SSE3 is on.
  constexpr unsigned kDenormalsAreZero = 0x40;
  _mm_setcsr(_mm_getcsr() | kDenormalsAreZero);
#endif
}

}  // namespace lodestar::process
