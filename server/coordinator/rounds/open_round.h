// SPDX-License-Identifier: Apache-2.0

// Holds the state of a round from its opening to its completion: which members have reported, which
// were lost, and the sums of the reports. Pure data.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"
#include "common/messages/program_metrics.h"
#include "common/runtime/ids.h"
#include "server/coordinator/rounds/evaluation_course.h"
#include "server/coordinator/rounds/round_summary.h"
#include "server/coordinator/rounds/work_ledger.h"

namespace lodestar::rounds {

class OpenRound {
 public:
  enum class ShareState : uint8_t { kMissing, kReported, kLost };
  struct Share {
    ShareState state = ShareState::kMissing;
    int64_t num_heldout_samples = 0;
    friend bool operator==(const Share&, const Share&) = default;
  };
  // The state of the round that outlives the coordinator's process. Does not have front_since().
  struct Memory {
    sync::RoundPlan plan;
    bool is_evaluation = false;
    absl::Time opened_at;
    std::map<WorkerId, Share> shares;
    int reported = 0;
    double loss_sum = 0.0;
    int64_t predictions = 0;
    int64_t samples = 0;
    HeldoutSums heldout;
    messages::MetricMeans metrics;
    RoundTimes times;  // sums over the workers that reported
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  OpenRound(const WorkLedger::Work& work, absl::Time opened_at);
  // Continues a round that an earlier process of the coordinator opened.
  OpenRound(Memory memory, absl::Time now) : memory_(std::move(memory)), front_since_(now) {}
  const Memory& memory() const { return memory_; }

  // Counts the report of a member. A second report of a member, and a report of a worker that is no
  // member of the round, are ignored.
  void Report(WorkerId worker, const messages::RoundReport& report, absl::Time now);
  void Lose(WorkerId worker, absl::Time now);

  const sync::RoundPlan& plan() const { return memory_.plan; }
  Round round() const { return memory_.plan.round; }
  bool is_evaluation() const { return memory_.is_evaluation; }
  absl::Time opened_at() const { return memory_.opened_at; }
  int reported() const { return memory_.reported; }
  // Returns the members of the roster that have reported.
  std::vector<sync::RosterMember> Reported() const;
  std::vector<WorkerId> Arrived() const { return InState(ShareState::kReported); }
  // Returns the workers that have neither reported nor been lost.
  std::vector<WorkerId> Missing() const { return InState(ShareState::kMissing); }
  // Returns the time since which the first worker of Missing() is the same. Contributions are
  // summed in a fixed order, so the other workers may have to wait for this worker.
  absl::Time front_since() const { return front_since_; }
  bool was_lost_from() const { return !InState(ShareState::kLost).empty(); }
  // Returns the summary of the round. It does not have the totals of the job or the result of an
  // evaluation.
  RoundSummary Summarize(absl::Time now) const;
  // Returns the sums over the held-out samples that were evaluated in this round.
  HeldoutSums Heldout() const;

 private:
  std::vector<WorkerId> InState(ShareState state) const;
  void Settle(WorkerId worker, ShareState state, absl::Time now);

  Memory memory_;
  absl::Time front_since_;
};

}  // namespace lodestar::rounds
