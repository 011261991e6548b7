// SPDX-License-Identifier: Apache-2.0

// Decides when the log reports what the cluster waits for: once per wait, after the wait has lasted
// for some time. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar::coordinator {

class WaitLog {
 public:
  static constexpr absl::Duration kLookInterval = absl::Seconds(1);

  // Returns true if Look() should be called now: at most once per kLookInterval.
  bool IsDue(absl::Time now);
  // Notes what the cluster waits for now. `wait` is a text without ages. Empty means that the
  // cluster waits for nothing. Returns true, once per wait, if the wait has lasted for `patience`
  // and the log has to report it.
  bool Look(absl::string_view wait, absl::Duration patience, absl::Time now);
  // Returns true if `wait` has been reported and still goes on.
  bool IsTold(absl::string_view wait) const { return is_told_ && wait == wait_; }

 private:
  absl::Time looked_at_ = absl::InfinitePast();
  std::string wait_;
  absl::Time since_;
  bool is_told_ = false;
};

}  // namespace lodestar::coordinator
