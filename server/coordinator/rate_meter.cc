#include "server/coordinator/rate_meter.h"

#include <algorithm>
#include <cmath>

namespace lodestar {

// The first amount only starts the clock: how long it took to come is not known.
void RateMeter::Add(double amount, absl::Time now) {
  if (!has_started_) {
    has_started_ = true;
    last_ = now;
    return;
  }
  const double elapsed = std::max(0.0, absl::ToDoubleSeconds(now - last_));
  const double kept = std::exp(-elapsed / absl::ToDoubleSeconds(kMemory));
  amount_ = amount_ * kept + amount;
  seconds_ = seconds_ * kept + elapsed;
  last_ = std::max(last_, now);
}

double RateMeter::PerSecond(absl::Time now) const {
  const double elapsed = std::max(0.0, absl::ToDoubleSeconds(now - last_));
  // A pause within the usual interval is no slowdown yet.
  const double seconds = elapsed > seconds_ ? seconds_ + elapsed : seconds_;
  return seconds > 0.0 ? amount_ / seconds : 0.0;
}

}  // namespace lodestar
