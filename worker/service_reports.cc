#include "worker/service_reports.h"

#include <utility>

namespace lodestar {

ServiceReports::ServiceReports(ServiceManager manager, std::string before, Clock* clock)
    : manager_(std::move(manager)),
      before_(std::move(before)),
      clock_(clock),
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

void ServiceReports::Report(const Reader& read) const {
  if (read == nullptr) return manager_.TellReady(before_);
  const State state = read();
  // Whoever is told to stop is alive for as long as it hands in what it has.
  if (state.is_stopping) manager_.TellStopping();
  manager_.TellReady(state.standing.empty() ? "computes" : state.standing);
}

}  // namespace lodestar
