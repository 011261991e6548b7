// WorkProgress says when a program that works for long by itself should tell how far it is, so that
// people do not take it for hung. It is pure: the time is given. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace lodestar {

class WorkProgress {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(10);

  // `total`: of all that is to be done, in a unit of the caller's.
  WorkProgress(int64_t total, absl::Time now) : total_(total), began_(now), told_(now) {}

  // `amount` more is about to be done. Returns true once per kInterval: it is time to tell.
  bool OnPiece(int64_t amount, absl::Time now);
  // What was done before the last piece.
  int64_t done() const { return done_; }
  int64_t total() const { return total_; }
  // "33 %, about 20s more"; without a time before anything is done.
  std::string ShareText(absl::Time now) const;

 private:
  const int64_t total_;
  const absl::Time began_;
  absl::Time told_;
  int64_t done_ = 0;
  int64_t begun_ = 0;  // with the last piece
};

}  // namespace lodestar
