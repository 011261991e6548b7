// SPDX-License-Identifier: Apache-2.0

// Changes what libraries do before or outside main(). For programs only: a library in another
// program's process must not link this file.
//
// Before the constructors of shared libraries run, closed standard streams are opened. Otherwise
// descriptors that gRPC's constructor opens would get the numbers 0 to 2.
//
// pthread_create() is replaced, also for libraries. If the system refuses a thread (ulimit -u,
// ulimit -v, a control group), the caller waits for up to kStartPatience. If the thread is still
// refused, the process prints a message and exits with 129. Without this, gRPC would print nothing,
// and would wait for that thread for ever or abort.

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/process/patient_start.h"
#include "common/process/process_setup.h"

namespace lodestar::process {
namespace {

__attribute__((section(".preinit_array"), used)) void (*open_streams)() = &OpenStandardStreams;

// Exit code for errors after which another try may succeed. Other processes may have freed their
// threads by then.
constexpr int kExitRetry = 129;

// Number of pthread_create() calls that wait and have reported kRefused. A log line is written only
// for the first of them.
std::atomic<int> told_waits = 0;

// Writes a line in the form of a log line, with the time in UTC. Unlike the log, it does not
// allocate memory.
void WriteLine(const char* level, const char* text) {
  const timespec now = absl::ToTimespec(absl::Now());
  tm fields = {};
  gmtime_r(&now.tv_sec, &fields);
  char time[32];
  strftime(time, sizeof(time), "%Y-%m-%d %H:%M:%S", &fields);
  char line[512];
  const int length = snprintf(line, sizeof(line), "%s.%03d+00:00 %s %s\n", time,
                              static_cast<int>(now.tv_nsec / 1'000'000), level, text);
  if (write(STDERR_FILENO, line, static_cast<size_t>(length)) < 0) return;
}

void Tell(StartNews news) {
  switch (news) {
    case StartNews::kRefused:
      if (told_waits.fetch_add(1) > 0) return;
      WriteLine("warning",
                "this process cannot start a thread and tries again for a minute; either its "
                "memory (ulimit -v) or the number of threads (ulimit -u, TasksMax=, pids.max) is "
                "at its limit. Raise the limit");
      return;
    case StartNews::kNotRefused:
      if (told_waits.fetch_sub(1) == 1) WriteLine("info", "this process can start threads again");
      return;
  }
}

// Must not allocate memory, because there may be none left.
[[noreturn]] void ExitWithoutThread() {
  WriteLine("error",
            "this process could not start a thread during one minute and ends at once, without "
            "saving; either its memory (ulimit -v) or the number of threads (ulimit -u, TasksMax=, "
            "pids.max) is at its limit. Raise the limit");
  _exit(kExitRetry);
}

}  // namespace
}  // namespace lodestar::process

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) noexcept {
  using lodestar::process::StartNews;
  static const auto create =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  const int error = lodestar::process::StartPatiently({
      .start = [&] { return create(thread, attributes, run, argument); },
      .now = [] { return absl::Now(); },
      .pause =
          [](absl::Duration pause) {
            const timespec time = absl::ToTimespec(pause);
            nanosleep(&time, nullptr);
          },
      .tell = [](StartNews news) { lodestar::process::Tell(news); },
  });
  if (error == EAGAIN || error == ENOMEM) lodestar::process::ExitWithoutThread();
  return error;
}
