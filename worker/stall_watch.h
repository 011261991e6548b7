// StallWatch tells whether the work that a worker does by itself gets on. Waiting for other
// processes has no limit here, because those processes have limits of their own.
//
// A step may take a second or an hour, by model and device, so it is measured by the past of the
// same work. It may take ten times as long as the longest so far, for as many samples. The
// coordinator gives a worker that keeps others waiting as much (RoundPatience). While there is no
// past, the work may take `first_factor` times the shortest patience.
//
// StallWatch is for one thread, and reads no clock: the caller gives the time. The time between two
// looks counts up to kLongestLook only. So the work does not count as standing still while the
// process or the machine did not run.
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

  // The work at hand.
  struct Work {
    std::string what;       // such as "computes"; only the past of work of the same name counts
    uint64_t progress = 0;  // changes whenever the work has got on
    int64_t size = 1;       // such as samples of a step; the time that work takes grows with it
    int first_factor = kFirstFactor;
    friend bool operator==(const Work&, const Work&) = default;
  };

  // `shortest` is the time that all work is given at least.
  explicit StallWatch(absl::Duration shortest) : shortest_(shortest) {}

  // To be called about once a second. If the worker waits for others, `work` is not set. Returns
  // for how long the work has stood still, if that is longer than it may, else zero.
  absl::Duration Look(absl::Time now, const std::optional<Work>& work);

 private:
  absl::Duration PatienceWith(const Work& work) const;

  const absl::Duration shortest_;
  std::optional<absl::Time> looked_at_;
  std::optional<Work> work_;
  absl::Duration still_;  // for how long work_ has not got on
  // By name of the work: the longest time that work has taken for each unit of its size.
  std::map<std::string, absl::Duration> longest_;
};

}  // namespace lodestar::worker
