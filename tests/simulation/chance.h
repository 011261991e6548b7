// SPDX-License-Identifier: Apache-2.0

// Chance makes all random decisions of a simulated run from one seed. SplitMix64 (Steele, Lea,
// Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace lodestar::simulation {

class Chance {
 public:
  using result_type = uint64_t;

  explicit Chance(uint64_t seed) : state_(seed) {}

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }
  uint64_t operator()() {
    state_ += 0x9e3779b97f4a7c15;
    return Mix(state_);
  }
  static uint64_t Mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
  }

  // Returns a number in [0, bound). `bound` must be positive.
  int64_t Below(int64_t bound) { return static_cast<int64_t>((*this)() % bound); }
  // Returns a number in [low, high], both ends included.
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  absl::Duration Between(absl::Duration low, absl::Duration high) {
    return low + absl::Nanoseconds(Below(absl::ToInt64Nanoseconds(high - low) + 1));
  }
  // Returns an element of `choices`.
  template <typename T, int64_t n>
  const T& Of(const T (&choices)[n]) {
    return choices[Below(n)];
  }

 private:
  uint64_t state_;
};

}  // namespace lodestar::simulation
