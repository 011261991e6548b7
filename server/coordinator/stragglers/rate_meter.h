// SPDX-License-Identifier: Apache-2.0

// Measures how much per second was added recently. The older an amount is, the less it counts.
// Pure.
#pragma once

#include "absl/time/time.h"

namespace lodestar::stragglers {

class RateMeter {
 public:
  static constexpr absl::Duration kMemory = absl::Seconds(15);  // after it, an amount counts 1/e

  void Add(double amount, absl::Time now);
  // Returns the amount per second. Returns 0 before the second Add(). Also returns 0 if the last
  // Add() was more than LongestPause() ago.
  double PerSecond(absl::Time now) const;

 private:
  double SecondsSinceLast(absl::Time now) const;
  // Returns the number of seconds without an Add() after which the amount per second is 0.
  double LongestPause() const;

  bool has_started_ = false;
  absl::Time last_;
  double amount_ = 0.0;
  double seconds_ = 0.0;
  double count_ = 0.0;  // fading number of amounts; seconds_ / count_ is the usual time between two
};

}  // namespace lodestar::stragglers
