// SPDX-License-Identifier: Apache-2.0

// Tells a program with a long task when to report its progress, so that users do not think that it
// hangs. Pure: the time is passed in. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace lodestar::process {

class WorkProgress {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(10);

  // `total` is the whole amount of work, in a unit of the caller's choice.
  WorkProgress(int64_t total, absl::Time now) : total_(total), began_(now), told_(now) {}

  // Notes that the next piece of work begins, and that its size is `amount`. Returns true if it is
  // time to report, which is at most once per kInterval.
  bool OnPiece(int64_t amount, absl::Time now);
  // Returns the amount of work that was done when the last piece began.
  int64_t done() const { return done_; }
  int64_t total() const { return total_; }
  // Returns text such as "33 %, about 20s more". If nothing is done yet, the time is left out.
  std::string ShareText(absl::Time now) const;

 private:
  const int64_t total_;
  const absl::Time began_;
  absl::Time told_;
  int64_t done_ = 0;
  int64_t begun_ = 0;  // amount of work begun, including the last piece
};

}  // namespace lodestar::process
