// ServiceReports: tells the service manager that has started a worker (systemd) how it stands,
// again and again. It is ready from the first time on, whatever it waits for: a machine's start
// must not wait for servers elsewhere, and no watchdog watches what is not ready.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/service_manager.h"

namespace lodestar {

class ServiceReports {
 public:
  struct State {
    bool is_stopping = false;
    std::string standing = {};  // what keeps it from computing; empty: it computes
  };
  // Blocks while the worker's state is locked: a worker that never lets go of it is not alive.
  using Reader = std::function<State()>;

  // Between two reports.
  static constexpr absl::Duration kInterval = absl::Seconds(1);

  // `clock` outlives it. Until Watch() the worker does what `before` says.
  ServiceReports(ServiceManager manager, std::string before, Clock* clock);
  ~ServiceReports() ABSL_LOCKS_EXCLUDED(mutex_);

  // From now on `read` says how the worker stands.
  void Watch(Reader read) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Report(const Reader& read) const;

  const ServiceManager manager_;
  const std::string before_;
  Clock* const clock_;
  absl::Mutex mutex_;
  Reader read_ ABSL_GUARDED_BY(mutex_);  // null: before Watch()
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lodestar
