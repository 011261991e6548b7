#include "common/process_setup.h"

#include <unistd.h>

#include <climits>  // defines __GLIBC__ where it applies
#include <new>

#include "absl/synchronization/mutex.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace lodestar {
namespace {

// An exception would end the process as well, but as if it were a fault of the program's that
// another try may not meet.
void ExitWithoutMemory() {
  constexpr char kText[] = "out of memory: give this process more, or the job more machines\n";
  constexpr int kExitFailed = 1;
  if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) _exit(kExitFailed);
  _exit(kExitFailed);
}

}  // namespace

void SetUpMalloc() {
  std::set_new_handler(ExitWithoutMemory);
#ifdef __GLIBC__
  constexpr int kMmapThresholdBytes = 1 << 30;
  constexpr int kTopPadBytes = 64 << 20;
  mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, kTopPadBytes);
  mallopt(M_ARENA_MAX, 1);
#endif
}

void SetUpMutexes() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

void FlushDenormals() {
#ifdef __SSE2__
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  // Of inputs; <pmmintrin.h> has the name, for SSE3 only.
  constexpr unsigned kDenormalsAreZero = 0x40;
  _mm_setcsr(_mm_getcsr() | kDenormalsAreZero);
#endif
}

}  // namespace lodestar
