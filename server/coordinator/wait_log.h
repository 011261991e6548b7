// SPDX-License-Identifier: Apache-2.0

// Decides when the log says what the cluster waits for: once per wait, if the wait lasts. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar::coordinator {

class WaitLog {
 public:
  static constexpr absl::Duration kLookInterval = absl::Seconds(1);

  // Returns true if Look() is due. It is due at most once per kLookInterval.
  bool IsDue(absl::Time now);
  // Records what the cluster waits for now. `wait` is a text without times, so that it stays the
  // same during a wait. Empty means that the cluster does not wait. Returns true, once per wait, if
  // the wait has lasted for `patience` and must be logged.
  bool Look(absl::string_view wait, absl::Duration patience, absl::Time now);
  // Returns true if Look() has returned true for this wait, and the wait goes on.
  bool IsTold(absl::string_view wait) const { return is_told_ && wait == wait_; }

 private:
  absl::Time looked_at_ = absl::InfinitePast();
  std::string wait_;
  absl::Time since_;
  bool is_told_ = false;
};

}  // namespace lodestar::coordinator
