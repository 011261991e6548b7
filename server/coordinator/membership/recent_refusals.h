// SPDX-License-Identifier: Apache-2.0

// RecentRefusals holds the workers that were turned away lately, and why. A refusal may be final or
// temporary. The number of entries is bounded. Pure data.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar::membership {

class RecentRefusals {
 public:
  static constexpr int kMaxRefusals = 16;

  struct Refusal {
    std::string name;
    std::string peer;
    std::string reason;
    absl::Time at;
  };

  // `shown_for` is how long Shown() returns a refusal.
  explicit RecentRefusals(absl::Duration shown_for) : shown_for_(shown_for) {}

  // Notes a refusal. Each name has one entry, with its last reason. Beyond kMaxRefusals entries,
  // the oldest is dropped. `name` and `peer` come from outside: unprintable bytes are escaped, and
  // long names are cut. Returns true if there was no entry with this name and reason.
  bool Note(absl::string_view name, absl::string_view peer, const absl::Status& reason,
            absl::Time now);
  // Removes the entry of a worker that was let in later.
  void Forget(absl::string_view name);
  // Returns the refusals that are not older than `shown_for`, ascending by time.
  std::vector<Refusal> Shown(absl::Time now) const;

 private:
  absl::Duration shown_for_;
  std::vector<Refusal> refusals_;  // the latest last
};

}  // namespace lodestar::membership
