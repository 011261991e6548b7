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

// Decides about the retries of one transfer. Their number has no limit, except after
// InvalidArgument. If a server does not come back, heartbeats fail and the worker's life ends,
// which cancels the transfer.
class TransferRetry {
 public:
  explicit TransferRetry(Clock* clock) : clock_(clock) {}

  // Returns true if the same transfer may succeed later in this life. Must be called after each
  // failure. InvalidArgument is retried only a few times. It may have been caused by bits that
  // flipped on the way.
  bool MayHelp(const absl::Status& status) {
    if (absl::IsInvalidArgument(status)) return ++num_refusals_ <= kMaxRepeatedRefusals;
    return RemedyFor(status) == Remedy::kRepeat;
  }

  // Sleeps, each time longer than before, up to kLongestPause. `what` names the transfer in the
  // log.
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
