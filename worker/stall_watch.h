// StallWatch: whether the work that a worker does by itself gets on. Waiting for others has no
// limit here: they have theirs, and tell it.
//
// A step may take a second or an hour, by model and device, so its own past is what it is measured
// by: ten times what the longest has taken, for as many samples, as the coordinator gives a worker
// that keeps others waiting (RoundPatience). While there is no past it has `first_factor` times the
// shortest patience.
//
// Pure, and for one thread: the time is given. What lies between two looks counts up to
// kLongestLook only, so that a process, or a machine, that did not run meanwhile stood still for
// nobody.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace lodestar {

class StallWatch {
 public:
  static constexpr absl::Duration kLongestLook = absl::Seconds(5);
  static constexpr int kFactor = 10;
  static constexpr int kFirstFactor = 6;

  // What is at hand.
  struct Work {
    std::string what;       // "computes": only the past of the same counts
    uint64_t progress = 0;  // another number: it has got on
    int64_t size = 1;       // what it takes grows with it: samples of a step
    int first_factor = kFirstFactor;
    friend bool operator==(const Work&, const Work&) = default;
  };

  // `shortest`: what all work has at least.
  explicit StallWatch(absl::Duration shortest) : shortest_(shortest) {}

  // About once a second. nullopt: it waits for others. Returns for how long the work has stood
  // still, if that is longer than it may, else zero.
  absl::Duration Look(absl::Time now, const std::optional<Work>& work);

 private:
  absl::Duration PatienceWith(const Work& work) const;

  const absl::Duration shortest_;
  std::optional<absl::Time> looked_at_;
  std::optional<Work> work_;
  absl::Duration still_;                           // of work_
  std::map<std::string, absl::Duration> longest_;  // of what was done, for each of its size
};

}  // namespace lodestar
