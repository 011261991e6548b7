// A round between its opening and its completion: who has reported, who was lost, and what the
// reports add up to. Pure data.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "common/cluster_messages.h"
#include "common/ids.h"
#include "server/coordinator/announcement.h"
#include "server/coordinator/evaluation_course.h"
#include "server/coordinator/work_ledger.h"

namespace lodestar {

class OpenRound {
 public:
  OpenRound(const WorkLedger::Work& work, absl::Time opened_at);

  // Counts each member once; others are ignored.
  void Report(WorkerId worker, const RoundReport& report, absl::Time now);
  void Lose(WorkerId worker, absl::Time now);

  const RoundPlan& plan() const { return plan_; }
  Round round() const { return plan_.round; }
  bool is_evaluation() const { return is_evaluation_; }
  absl::Time opened_at() const { return opened_at_; }
  int reported() const { return reported_; }
  // Those of the roster who have.
  std::vector<RosterMember> Reported() const;
  std::vector<WorkerId> Arrived() const { return InState(State::kReported); }
  // Neither reported nor lost.
  std::vector<WorkerId> Missing() const { return InState(State::kMissing); }
  // Since when the first of the missing is the first of them. Sums have a fixed order: those behind
  // it may wait for it.
  absl::Time front_since() const { return front_since_; }
  bool was_lost_from() const { return !InState(State::kLost).empty(); }
  // Without the totals of the job and the result of an evaluation.
  RoundSummary Summarize(absl::Time now) const;
  // Of the parts of an evaluation that this round carries.
  HeldoutSums Heldout() const;

 private:
  enum class State : uint8_t { kMissing, kReported, kLost };
  struct Share {
    State state = State::kMissing;
    int64_t num_heldout_samples = 0;
  };
  std::vector<WorkerId> InState(State state) const;
  void Settle(WorkerId worker, State state, absl::Time now);

  RoundPlan plan_;
  bool is_evaluation_ = false;
  absl::Time opened_at_;
  absl::Time front_since_;
  std::map<WorkerId, Share> shares_;
  int reported_ = 0;
  double loss_sum_ = 0.0;
  int64_t predictions_ = 0;
  int64_t samples_ = 0;
  HeldoutSums heldout_;
};

}  // namespace lodestar
