// Workers that were turned away lately, for good or for now, and why: bounded. Pure data.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar {

class RecentRefusals {
 public:
  static constexpr int kMaxRefusals = 16;

  struct Refusal {
    std::string name;
    std::string peer;
    std::string reason;
    absl::Time at;
  };

  // A refusal is shown for so long.
  explicit RecentRefusals(absl::Duration shown_for) : shown_for_(shown_for) {}

  // Keeps one line per name, with the last reason. Beyond kMaxRefusals, the oldest goes. `name` and
  // `peer` come from outside: whatever is no printable text is escaped, and long names are cut.
  // Returns true if there was none of this name and reason.
  bool Note(absl::string_view name, absl::string_view peer, const absl::Status& reason,
            absl::Time now);
  // The worker got in after all.
  void Forget(absl::string_view name);
  // Returns those that are shown. The latest is the last.
  std::vector<Refusal> Shown(absl::Time now) const;

 private:
  absl::Duration shown_for_;
  std::vector<Refusal> refusals_;  // The latest is the last.
};

}  // namespace lodestar
