// SPDX-License-Identifier: Apache-2.0

// Decides which failed transfers are retried, and after which delay.
#pragma once

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/logging/logging.h"
#include "common/runtime/clock.h"
#include "common/runtime/remedy.h"

namespace lodestar::trainer {

// The retries of one transfer. Their number has no limit. If a server does not come back,
// heartbeats fail, the worker's life ends, and the end of the life cancels the transfer.
class TransferRetry {
 public:
  explicit TransferRetry(Clock* clock) : clock_(clock) {}

  // Returns true if the same transfer may succeed later without a new registration. Must be called
  // once per failure. InvalidArgument is retried a few times, because flipped bits on the way may
  // make a request invalid.
  bool MayHelp(const absl::Status& status) {
    if (absl::IsInvalidArgument(status)) return ++num_refusals_ <= kMaxRepeatedRefusals;
    return RemedyFor(status) == Remedy::kRepeat;
  }

  // Sleeps, longer each time. `what` names the transfer in the log.
  void BackOff(const absl::Status& status, absl::string_view what) {
    if (pause_ == kFirstPause || absl::IsInvalidArgument(status)) {
      logging::LogWarn("{} failed ({}); trying again", what, status.message());
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
  int num_refusals_ = 0;  // InvalidArgument errors of this transfer so far.
};

}  // namespace lodestar::trainer
