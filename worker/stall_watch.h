// SPDX-License-Identifier: Apache-2.0

// StallWatch finds out whether a worker's own work makes progress. A worker may wait for other
// processes without a limit, because those processes have limits of their own.
//
// A step may take a second or an hour, depending on model and device. So the time limit of work
// depends on earlier work of the same name:
// - The first work may take `first_factor` times `shortest`.
// - Later work may take ten times as long, per sample, as the slowest work so far, but at least
//   `shortest`. RoundPatience in the coordinator has the same factor.
//
// StallWatch is for one thread, and reads no clock: the caller passes the time in. If more than
// kLongestLook has passed between two looks, only kLongestLook is counted, because the process or
// the machine may not have run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace lodestar::worker {

class StallWatch {
 public:
  static constexpr absl::Duration kLongestLook = absl::Seconds(5);
  static constexpr int kFactor = 10;
  static constexpr int kFirstFactor = 6;

  // The present work.
  struct Work {
    // A name such as "computes". The time is compared only with that of earlier work of the same
    // name.
    std::string what;
    // A number that changes whenever the work makes progress.
    uint64_t progress = 0;
    // The size of the work, such as the samples of a step. Larger work may take longer in
    // proportion.
    int64_t size = 1;
    int first_factor = kFirstFactor;
    friend bool operator==(const Work&, const Work&) = default;
  };

  // No work has a shorter limit than `shortest`.
  explicit StallWatch(absl::Duration shortest) : shortest_(shortest) {}

  // If the work has made no progress for longer than allowed, returns the time without progress.
  // Otherwise returns zero. Must be called about once a second. `work` is not set if the worker
  // waits for other processes.
  absl::Duration Look(absl::Time now, const std::optional<Work>& work);

 private:
  absl::Duration PatienceWith(const Work& work) const;

  const absl::Duration shortest_;
  std::optional<absl::Time> looked_at_;
  std::optional<Work> work_;
  absl::Duration still_;  // Time since work_ last made progress.
  // The longest time per unit of size, by the name of the work.
  std::map<std::string, absl::Duration> longest_;
};

}  // namespace lodestar::worker
