// Hands out the data: the global cursor, who gets which samples of a round, at which learning
// rates, and when the held-out set is evaluated by whom. Pure; the coordinator serializes calls.
//
// The samples of a round follow from the state and the number of members only, so the global batch
// of a round is the same whoever computes it, and a restored state goes on with the same grants.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/job_spec.h"
#include "server/coordinator/coordinator_state.h"
#include "server/coordinator/messages.h"
#include "server/sync/round_plan.h"

namespace lodestar {

class WorkLedger {
 public:
  // One grant per member of the plan's roster, in its order.
  struct Work {
    RoundPlan plan;
    std::vector<Grant> grants;
  };

  WorkLedger(const JobSpec& job, const LedgerState& state) : job_(job), state_(state) {}

  // The first claim becomes the job's; the others must equal it, unless data is a worker's own
  // business. `may_replace`: nobody relies on the job's claim yet. Errors: FailedPrecondition with
  // both fingerprints and sizes; InvalidArgument if the claim contradicts itself.
  absl::Status AdmitDataset(const DatasetClaim& claim, bool may_replace);

  // Members that can get at least one sample each.
  int max_roster() const;
  // Opens the next round: advances the cursor. `roster`: ascending by worker; num_samples is filled
  // in. Requires: !is_exhausted().
  Work OpenRound(ViewId view, absl::Span<const RosterMember> roster, Version min_version);
  // Cuts the evaluation set over the roster. `round`: at least the job's last.
  Work OpenFinalEvaluation(ViewId view, absl::Span<const RosterMember> roster, Round round,
                           Version min_version) const;
  void FinishFinalEvaluation() { state_.final_evaluation_round = state_.next_round; }
  void CountSamples(int64_t num_samples) { state_.trained_samples += num_samples; }

  Round next_round() const { return Round(state_.next_round); }
  bool is_exhausted() const { return state_.next_round >= job_.schedule.total_rounds; }
  // Held-out samples there are, and the final evaluation of this many rounds is still to do.
  bool needs_final_evaluation() const;
  int64_t evaluation_set_size() const;
  // Samples handed out over samples per epoch; 0 if unknown.
  double epoch() const;
  const LedgerState& state() const { return state_; }

 private:
  // Samples of member `index` of `count` in each local step.
  int64_t SamplesPerStep(int index, int count) const;
  void CutEvaluation(std::vector<Grant>& grants) const;

  JobSpec job_;
  LedgerState state_;
};

}  // namespace lodestar
