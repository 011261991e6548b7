// SPDX-License-Identifier: Apache-2.0

#include "worker/service_reports.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/runtime/time_text.h"

namespace lodestar::worker {

ServiceReports::ServiceReports(process::ServiceManager manager, std::string before,
                               absl::Duration shortest_patience, Clock* clock)
    : manager_(std::move(manager)),
      before_(std::move(before)),
      clock_(clock),
      stall_watch_(shortest_patience),
      thread_([this] { Run(); }) {}

ServiceReports::~ServiceReports() {
  {
    absl::MutexLock lock(&mutex_);
    is_over_ = true;
  }
  thread_.join();
}

void ServiceReports::Watch(Reader read) {
  absl::MutexLock lock(&mutex_);
  read_ = std::move(read);
}

void ServiceReports::Run() {
  while (true) {
    Reader read;
    {
      absl::MutexLock lock(&mutex_);
      read = read_;
    }
    Report(read);
    absl::MutexLock lock(&mutex_);
    if (clock_->Await(mutex_, absl::Condition(&is_over_), kInterval)) return;
  }
}

void ServiceReports::Report(const Reader& read) {
  if (read == nullptr) return manager_.TellReady(before_);
  const State state = read();
  const absl::Duration still = stall_watch_.Look(clock_->Now(), state.work);
  if (still > absl::ZeroDuration() && !state.is_stopping) {
    const std::string text = absl::StrCat("this worker hangs: it ", state.work->what,
                                          " and has made no progress for ", DurationText(still));
    if (!std::exchange(is_stall_told_, true)) {
      logging::LogError(
          "{} (--stall_timeout). A service manager that watches the worker ends and restarts it; "
          "without one, restart the worker",
          text);
    }
    return manager_.TellStuck(text);
  }
  is_stall_told_ = false;
  // A stopping worker still hands in its work. So it also keeps reporting that it is alive.
  if (state.is_stopping) manager_.TellStopping();
  manager_.TellReady(state.standing.empty() ? "computes" : state.standing);
}

}  // namespace lodestar::worker
