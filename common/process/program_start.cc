// What a program needs before, or in place of, what its libraries do; only for programs, not for
// libraries in programs of others.
//
// Closed standard streams are opened before the constructors of shared libraries run: that of gRPC
// opens descriptors, which would get the numbers 0 to 2.
//
// pthread_create() is replaced, also for libraries: a thread that cannot be started (ulimit -u,
// ulimit -v, a control group) ends the process with a sentence and exit code 1. gRPC says nothing
// about it, and then waits for that thread for ever or aborts.

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/string_view.h"
#include "common/process/process_setup.h"

namespace {

__attribute__((section(".preinit_array"),
               used)) void (*open_streams)() = &lodestar::OpenStandardStreams;

// Other processes of the user may have taken the last threads for a moment only.
constexpr int kTries = 20;
constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 50'000'000};

// Takes no memory, of which there may be none.
[[noreturn]] void ExitWithoutThread() {
  constexpr absl::string_view kText =
      "cannot start a thread: memory is limited (ulimit -v), or the number of threads (ulimit -u, "
      "control group); raise that\n";
  constexpr int kExitFailed = 1;
  if (write(STDERR_FILENO, kText.data(), kText.size()) < 0) _exit(kExitFailed);
  _exit(kExitFailed);
}

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) noexcept {
  static const auto create =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  for (int i = 0; i < kTries; ++i) {
    const int error = create(thread, attributes, run, argument);
    if (error != EAGAIN && error != ENOMEM) return error;
    nanosleep(&kPause, nullptr);
  }
  ExitWithoutThread();
}
