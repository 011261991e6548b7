// Decides when the log is told what the cluster waits for: once per wait, after it has lasted for a
// while. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar {

class WaitLog {
 public:
  static constexpr absl::Duration kLookInterval = absl::Seconds(1);

  // Whether to look again; true at most once per kLookInterval.
  bool IsDue(absl::Time now);
  // `wait` says what is waited for, without ages. Empty means nothing. Returns true if the wait has
  // lasted for `patience` and is to be told now.
  bool Look(absl::string_view wait, absl::Duration patience, absl::Time now);
  // Whether this wait has been told and goes on.
  bool IsTold(absl::string_view wait) const { return is_told_ && wait == wait_; }

 private:
  absl::Time looked_at_ = absl::InfinitePast();
  std::string wait_;
  absl::Time since_;
  bool is_told_ = false;
};

}  // namespace lodestar
