#include "common/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace lodestar {
namespace {

class RealClock : public Clock {
 public:
  absl::Time Now() override {
    // steady_clock, shifted to the wall clock once: steps of the system's clock never show.
    return wall_start_ + absl::FromChrono(std::chrono::steady_clock::now() - steady_start_);
  }

  void Sleep(absl::Duration duration) override { absl::SleepFor(duration); }

 private:
  const absl::Time wall_start_ = absl::Now();
  const std::chrono::steady_clock::time_point steady_start_ = std::chrono::steady_clock::now();
};

}  // namespace

bool Clock::Await(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration timeout) {
  return mutex.AwaitWithTimeout(condition, timeout);
}

Clock& Clock::Real() {
  static RealClock* const clock = new RealClock;  // never destroyed: threads may outlive main()
  return *clock;
}

}  // namespace lodestar
