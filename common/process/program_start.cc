// SPDX-License-Identifier: Apache-2.0

// Replaces or prepares things that libraries do, before or outside main(). This file is for
// programs only: a library in another program's process must not link it.
//
// Closed standard streams are opened before the constructors of shared libraries run: gRPC's
// constructor opens descriptors, which would get the numbers 0 to 2.
//
// pthread_create() is replaced, also for libraries: if a thread cannot be started (ulimit -u,
// ulimit -v, a control group), the process prints a message and exits with 1. gRPC would print
// nothing, and would wait for that thread for ever or abort.

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/string_view.h"
#include "common/process/process_setup.h"

namespace {

__attribute__((section(".preinit_array"),
               used)) void (*open_streams)() = &lodestar::process::OpenStandardStreams;

// Other processes of the user may hold the last threads only for a moment, so thread creation is
// tried again.
constexpr int kTries = 20;
constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 50'000'000};

// Must not allocate memory, because there may be none left.
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
