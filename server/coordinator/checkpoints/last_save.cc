// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/checkpoints/last_save.h"

#include <algorithm>

namespace lodestar::checkpoints {

void LastSave::Begin(bool gives_up, absl::Time now) {
  if (outcome_.has_value() && outcome_->ok()) return;
  if (is_under_way() && gives_up_ >= gives_up) return;
  is_begun_ = true;
  gives_up_ = gives_up;
  failures_ = 0;
  next_try_ = now;
  outcome_.reset();
}

std::optional<LastSave::Place> LastSave::Due(absl::Time now) const {
  if (!is_under_way() || now < next_try_) return std::nullopt;
  return failures_ % TriesPerLap() == kTries ? Place::kFallback : Place::kFolder;
}

void LastSave::OnFailed(const absl::Status& error, absl::Time now) {
  if (!is_under_way()) return;
  error_ = error;
  ++failures_;
  if (gives_up_ && failures_ >= TriesPerLap()) {
    outcome_ = error;
    return;
  }
  next_try_ = now;
  if (failures_ % TriesPerLap() == kTries) return;
  absl::Duration pause = kFirstPause;
  for (int i = 1; i < failures_ && pause < kLongestPause; ++i) pause *= 4;
  next_try_ += std::min(pause, kLongestPause);
}

}  // namespace lodestar::checkpoints
