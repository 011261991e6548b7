// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/stragglers/rate_meter.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lodestar::stragglers {
namespace {

// If the time since the last amount is longer than this many usual times between two amounts,
// PerSecond() falls.
constexpr double kUsualPauses = 2.0;
// If the time since the last amount is longer than this many usual times between two amounts, and
// longer than RateMeter::kMemory, PerSecond() is 0.
constexpr double kUsualPausesOfAStandstill = 10.0;

// Returns the weight of amounts that are `seconds` old. The weight of a new amount is 1.
double KeptAfter(double seconds) {
  return std::exp(-seconds / absl::ToDoubleSeconds(RateMeter::kMemory));
}

}  // namespace

// The first amount is not counted, because the time before it is not known.
void RateMeter::Add(double amount, absl::Time now) {
  if (!has_started_) {
    has_started_ = true;
    last_ = now;
    return;
  }
  const double elapsed = std::min(SecondsSinceLast(now), LongestPause());
  const double kept = KeptAfter(elapsed);
  amount_ = amount_ * kept + amount;
  seconds_ = seconds_ * kept + elapsed;
  count_ = count_ * kept + 1.0;
  last_ = std::max(last_, now);
}

double RateMeter::PerSecond(absl::Time now) const {
  if (seconds_ <= 0.0) return 0.0;
  const double elapsed = SecondsSinceLast(now);
  if (elapsed > LongestPause()) return 0.0;
  // The time since the last amount lowers the result only if it is much longer than usual.
  if (elapsed * count_ <= kUsualPauses * seconds_) return amount_ / seconds_;
  const double kept = KeptAfter(elapsed);
  return amount_ * kept / (seconds_ * kept + elapsed);
}

double RateMeter::LongestPause() const {
  if (count_ <= 0.0) return std::numeric_limits<double>::infinity();
  return std::max(absl::ToDoubleSeconds(kMemory), kUsualPausesOfAStandstill * seconds_ / count_);
}

double RateMeter::SecondsSinceLast(absl::Time now) const {
  return std::max(0.0, absl::ToDoubleSeconds(now - last_));
}

}  // namespace lodestar::stragglers
