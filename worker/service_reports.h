// ServiceReports tells the service manager that has started a worker (systemd) how the worker
// stands, again and again. The worker is reported as ready from the first report on, whatever it
// waits for: a machine's start must not wait for servers elsewhere, and a watchdog only watches
// services that are ready. The worker is reported as alive while it waits for others, and while the
// work that it does by itself gets on: see StallWatch.
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
    // What keeps the worker from computing. If empty, the worker computes.
    std::string standing = {};
    // What the worker does by itself. If not set, it waits for others.
    std::optional<StallWatch::Work> work = {};
  };
  // A Reader returns the worker's state. It may block while that state is locked: a worker that
  // never unlocks its state is not alive.
  using Reader = std::function<State()>;

  // The time between two reports.
  static constexpr absl::Duration kInterval = absl::Seconds(1);

  // Until Watch() is called, reports say `before`. `shortest_patience` is that of StallWatch.
  // `clock` must outlive the object.
  ServiceReports(ServiceManager manager, std::string before, absl::Duration shortest_patience,
                 Clock* clock);
  ~ServiceReports() ABSL_LOCKS_EXCLUDED(mutex_);

  // From now on `read` tells how the worker stands.
  void Watch(Reader read) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Report(const Reader& read);

  const ServiceManager manager_;
  const std::string before_;
  Clock* const clock_;
  StallWatch stall_watch_;  // only used by thread_
  bool is_stall_told_ = false;
  absl::Mutex mutex_;
  Reader read_ ABSL_GUARDED_BY(mutex_);  // null before Watch()
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // is the last member, because it uses the others
};

}  // namespace lodestar::worker
