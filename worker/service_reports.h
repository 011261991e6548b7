// SPDX-License-Identifier: Apache-2.0

// ServiceReports repeatedly reports the state of a worker to the service manager (systemd) that has
// started it:
// - The worker is ready from the first report on, even if it still waits for servers. systemd then
//   continues to start the machine, and begins to watch the worker.
// - The worker is alive while it waits for other processes, or while its own work makes progress
//   (see StallWatch).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/process/service_manager.h"
#include "common/runtime/clock.h"
#include "worker/stall_watch.h"

namespace lodestar::worker {

class ServiceReports {
 public:
  struct State {
    bool is_stopping = false;
    // The reason why the worker does not compute. Empty means that the worker computes.
    std::string standing = {};
    // The present work that needs no other process. Not set means that the worker waits for other
    // processes.
    std::optional<StallWatch::Work> work = {};
  };
  // Returns the worker's state. May block while the state is locked. If the state stays locked, no
  // reports are sent, and the worker counts as dead.
  using Reader = std::function<State()>;

  // Time between two reports.
  static constexpr absl::Duration kInterval = absl::Seconds(1);

  // Begins to report. Until Watch() is called, reports contain the text `before`.
  // `shortest_patience` is the argument of StallWatch. `clock` must outlive the object.
  ServiceReports(process::ServiceManager manager, std::string before,
                 absl::Duration shortest_patience, Clock* clock);
  ~ServiceReports() ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls `read` for each report from now on.
  void Watch(Reader read) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Report(const Reader& read);

  const process::ServiceManager manager_;
  const std::string before_;
  Clock* const clock_;
  StallWatch stall_watch_;  // Only thread_ uses it.
  bool is_stall_told_ = false;
  absl::Mutex mutex_;
  Reader read_ ABSL_GUARDED_BY(mutex_);  // Null before Watch().
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  // thread_ must be the last member, because it uses all other members.
  std::thread thread_;
};

}  // namespace lodestar::worker
