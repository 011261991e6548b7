// Says which failed transfers are worth another try, and when.
#pragma once

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/logging/logging.h"
#include "common/runtime/clock.h"
#include "common/runtime/remedy.h"

namespace lodestar::trainer {

// The back-off of one transfer. It has no limit: a server that is away long enough ends the
// worker's life through the heartbeats, which cancels the transfer.
class TransferRetry {
 public:
  explicit TransferRetry(Clock* clock) : clock_(clock) {}

  // Returns true if the same transfer may succeed later without another registration. Must be
  // called once per failure. InvalidArgument counts, because bits that flipped on the way look the
  // same to a server as a wrong request does.
  bool MayHelp(const absl::Status& status) {
    if (absl::IsInvalidArgument(status)) return ++num_refusals_ <= kMaxRepeatedRefusals;
    return RemedyFor(status) == Remedy::kRepeat;
  }

  // Sleeps, longer each time. `what` names the transfer in the log.
  void BackOff(const absl::Status& status, absl::string_view what) {
    if (pause_ == kFirstPause || absl::IsInvalidArgument(status)) {
      LogWarn("{} failed ({}); trying again", what, status.message());
    }
    clock_->Sleep(pause_);
    pause_ = std::min(2 * pause_, kLongestPause);
  }

 private:
  static constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
  static constexpr absl::Duration kLongestPause = absl::Seconds(1);
  static constexpr int kMaxRepeatedRefusals = 3;

  Clock* const clock_;
  absl::Duration pause_ = kFirstPause;
  int num_refusals_ = 0;  // The number of InvalidArgument errors of this transfer.
};

}  // namespace lodestar::trainer
