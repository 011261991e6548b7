// SPDX-License-Identifier: Apache-2.0

// StallWatch tells whether a worker's own work makes progress. Waiting for other processes has no
// limit here, because those processes have limits of their own.
//
// A step may take a second or an hour, depending on model and device. So the limit comes from
// earlier work of the same name. Work may take ten times as long, per sample, as the longest
// earlier work. The coordinator uses the same factor for a worker that others wait for
// (RoundPatience). The first work of a name may take `first_factor` times `shortest`.
//
// StallWatch is for one thread, and reads no clock: the caller passes the time in. The time between
// two looks counts up to kLongestLook only, so that time in which the process or the machine did
// not run is left out.
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
    // Name such as "computes". Work is compared with earlier work of the same name only.
    std::string what;
    // Changes whenever the work has made progress.
    uint64_t progress = 0;
    // Size such as the samples of a step. The time of the work grows with it.
    int64_t size = 1;
    int first_factor = kFirstFactor;
    friend bool operator==(const Work&, const Work&) = default;
  };

  // `shortest` is the shortest limit for any work.
  explicit StallWatch(absl::Duration shortest) : shortest_(shortest) {}

  // If the work has made no progress for longer than allowed, returns for how long. Otherwise
  // returns zero. Must be called about once a second. `work` is not set if the worker waits for
  // other processes.
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
