// SPDX-License-Identifier: Apache-2.0

#include "common/net/connect_patience.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/runtime/time_text.h"

namespace lodestar::net {

absl::StatusOr<absl::Duration> ConnectPatience::TimeoutOf(absl::string_view setting,
                                                          absl::Duration given) {
  if (given == absl::ZeroDuration()) return absl::InfiniteDuration();
  if (given >= absl::Seconds(1) && given <= kLongest) return given;
  return absl::InvalidArgumentError(absl::StrCat(
      setting, "=", absl::FormatDuration(given),
      " is out of range; give 0 to try for ever, or a duration such as 90s or 1h, from 1s to ",
      absl::FormatDuration(kLongest)));
}

void ConnectPatience::OnUnanswered(absl::Time began) {
  if (!since_.has_value()) since_ = began;
}

bool ConnectPatience::IsOver(absl::Time now) const {
  return since_.has_value() && now - *since_ >= config_.timeout;
}

std::string ConnectPatience::WhatIsLeft(absl::Time now) const {
  if (config_.timeout == absl::InfiniteDuration()) {
    return absl::StrCat("this program tries to reach ", config_.servers, " without a time limit; ",
                        config_.setting, " can set one");
  }
  const absl::Duration left = config_.timeout - (now - since_.value_or(now));
  return absl::StrCat("this program tries to reach ", config_.servers, " for up to ",
                      DurationText(absl::Ceil(left, absl::Seconds(1))), " more (", config_.setting,
                      "=", absl::FormatDuration(config_.timeout), ")");
}

absl::Status ConnectPatience::Outcome(absl::string_view reason) const {
  return absl::UnavailableError(absl::StrCat(
      "no server has answered at ", config_.servers, " for ", absl::FormatDuration(config_.timeout),
      " (", config_.setting, "): ", reason,
      ". Check that the job still runs and that this is the address of its server of shard 0. Then "
      "start this program again. If the server may be away for longer, give a larger ",
      config_.setting));
}

}  // namespace lodestar::net
