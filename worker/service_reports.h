// ServiceReports: tells the service manager that has started a worker (systemd) how it stands,
// again and again. It is ready from the first time on, whatever it waits for: a machine's start
// must not wait for servers elsewhere, and no watchdog watches what is not ready. It is alive while
// it waits for others, and while what it does by itself gets on: see StallWatch.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/service_manager.h"
#include "worker/stall_watch.h"

namespace lodestar {

class ServiceReports {
 public:
  struct State {
    bool is_stopping = false;
    std::string standing = {};                  // what keeps it from computing; empty: it computes
    std::optional<StallWatch::Work> work = {};  // nullopt: it waits for others
  };
  // Blocks while the worker's state is locked: a worker that never lets go of it is not alive.
  using Reader = std::function<State()>;

  // Between two reports.
  static constexpr absl::Duration kInterval = absl::Seconds(1);

  // `clock` outlives it. Until Watch() the worker waits for what `before` says.
  // `shortest_patience`: see StallWatch.
  ServiceReports(ServiceManager manager, std::string before, absl::Duration shortest_patience,
                 Clock* clock);
  ~ServiceReports() ABSL_LOCKS_EXCLUDED(mutex_);

  // From now on `read` says how the worker stands.
  void Watch(Reader read) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Report(const Reader& read);

  const ServiceManager manager_;
  const std::string before_;
  Clock* const clock_;
  StallWatch stall_watch_;  // of the thread
  bool is_stall_told_ = false;
  absl::Mutex mutex_;
  Reader read_ ABSL_GUARDED_BY(mutex_);  // null: before Watch()
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lodestar
