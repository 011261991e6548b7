// Workers that were turned away lately, for good or for now, and why: bounded. Pure data.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/coordinator/cluster_snapshot.h"

namespace lodestar {

class RefusalBook {
 public:
  static constexpr int kMaxRefusals = 16;
  static constexpr absl::Duration kShownFor = absl::Hours(1);

  // `state`: of the workers in the status, for so long.
  explicit RefusalBook(std::string state = "refused", absl::Duration shown_for = kShownFor)
      : state_(std::move(state)), shown_for_(shown_for) {}

  // One line per name, with the last reason. Beyond kMaxRefusals, the oldest goes. `name` and
  // `peer` come from outside: whatever is no printable text is escaped, and long names are cut.
  // True if there was none of this name and reason.
  bool Note(absl::string_view name, absl::string_view peer, const absl::Status& reason,
            absl::Time now);
  // The worker got in after all.
  void Forget(absl::string_view name);
  // The latest last.
  std::vector<WorkerSnapshot> Snapshot(absl::Time now) const;

 private:
  struct Refusal {
    std::string name;
    std::string peer;
    std::string reason;
    absl::Time at;
  };
  std::string state_;
  absl::Duration shown_for_;
  std::vector<Refusal> refusals_;  // the latest last
};

}  // namespace lodestar
