// Hands out the data: which worker gets which samples of a round, at which learning rates, and when
// the held-out sets are evaluated by which workers. Pure; the coordinator serializes calls.
//
// The samples of a round follow only from the state, the number of members and which member has
// which data set. So with shared data the global batch of a round is the same whichever members
// compute it, and a restored state goes on with the same grants. With --balance=speed, the speeds
// of the members also decide which of them computes which samples of the batch, and, if each member
// has rounds of its own, how many samples these have.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/job/fragment_plan.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/coordinator/checkpoints/coordinator_state.h"
#include "server/coordinator/rounds/data_sets.h"
#include "server/coordinator/rounds/evaluation_course.h"
#include "server/coordinator/rounds/site_order.h"
#include "server/coordinator/rounds/speed_balance.h"
#include "server/sync/round_plan.h"

namespace lodestar {

class WorkLedger {
 public:
  // One grant per member of the plan's roster, in its order.
  struct Work {
    RoundPlan plan;
    std::vector<Grant> grants;
  };

  // All that it knows beside the job.
  struct Memory {
    LedgerState state;  // but for the data sets
    DataSets::Memory data;
    EvaluationCourse::Memory evaluations;
    bool is_evaluation_due = false;
    int64_t evaluated_place = 0;  // of the round that an evaluation was due with last
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  WorkLedger(const JobSpec& job, const LedgerState& state)
      : job_(job), state_(state), data_(state.data_sets) {}
  // Requires what DataSets does.
  WorkLedger(const JobSpec& job, Memory memory)
      : job_(job),
        state_(std::move(memory.state)),
        data_(std::move(memory.data)),
        evaluations_(std::move(memory.evaluations)),
        is_evaluation_due_(memory.is_evaluation_due),
        evaluated_place_(memory.evaluated_place) {}
  Memory memory() const;

  // A worker must be admitted before it is in a roster, and released when its life ends. Errors of
  // AdmitWorker(): those of DataSets::Admit().
  absl::Status AdmitWorker(WorkerId worker, absl::string_view name, const DatasetInfo& data) {
    return data_.Admit(worker, name, data);
  }
  void ReleaseWorker(WorkerId worker);

  // Members that can get at least one sample each.
  int max_roster() const;
  // Whether members get samples to compute on, beside what a round takes.
  enum class Computes : uint8_t { kYes, kNo };
  // Opens the next round: advances the cursors. `roster`: ascending by worker; num_samples is
  // filled in, unless contributions are deferred (DefersContributions()): then it is what they have
  // in hand for this round, and the job's last round gives them nothing to compute, nor does one
  // that is to have `computes` kNo. Requires: !is_exhausted().
  Work OpenRound(ViewId view, absl::Span<const RosterMember> roster, Round min_round,
                 Computes computes = Computes::kYes, const MemberSpeeds& speeds = {});
  // Opens a round for this order of a site. Its grants are numbered and cut as those of
  // OpenRound(). All members have one data set, and there are at most max_roster_of(order) of them.
  Work OpenOrdered(const SiteOrder& order, ViewId view, absl::Span<const RosterMember> roster,
                   Round min_round, const MemberSpeeds& speeds = {});
  static int max_roster_of(const SiteOrder& order);
  // Returns the data set of the members. Not set means that there are none.
  std::optional<DatasetInfo> SharedData() const;
  // Cuts the evaluation set over the roster. `round`: at least the job's last.
  Work OpenFinalEvaluation(ViewId view, absl::Span<const RosterMember> roster, Round round,
                           Round min_round) const;
  void FinishFinalEvaluation() { state_.final_evaluation_round = state_.next_round; }
  // A round of OpenRound() is over: its samples, and what its held-out samples added up to. Returns
  // the sums of an evaluation that this completes.
  std::optional<HeldoutSums> CloseRound(Round round, int64_t num_samples, const HeldoutSums& sums);
  // A round of OpenRound() is over without a report: all its workers are gone. It is none of the
  // rounds that the job asks for; those that were opened after it have moved up by one.
  void LoseRound(Round round);

  Round next_round() const { return Round(state_.next_round); }
  // Returns the number of rounds that the job asks for, and of those lost so far.
  int64_t total_rounds() const { return job_.schedule.total_rounds + state_.lost_rounds; }
  int64_t lost_rounds() const { return state_.lost_rounds; }
  // Multiplies the learning rate of the grants that follow, as an operator wants it.
  void MultiplyLearningRateScale(double factor) {
    state_.learning_rate_scale *= factor;
    state_.scale_by_operators *= factor;
  }
  bool is_exhausted() const { return state_.next_round >= total_rounds(); }
  // Held-out samples there are, and the final evaluation of this many rounds is still to do.
  bool needs_final_evaluation() const;
  // Returns workers of data sets that no member of the roster has: without them an evaluation is
  // not over all.
  std::vector<WorkerId> LackingFor(absl::Span<const RosterMember> roster) const;
  int64_t evaluation_set_size() const;
  // Held-out samples of all data sets that some worker has; an evaluation takes
  // evaluation_set_size() of them.
  int64_t num_heldout_samples() const;
  // Returns the learning rate of a local step of a round, with what rollbacks have made of it.
  double LearningRate(Round round, int step) const {
    return LearningRate(round, step, StepsOfWindow(job_, round));
  }
  // Samples handed out over samples there are; 0 if unknown.
  double epoch() const { return data_.Epoch(); }
  // Null if the worker is not admitted.
  const DataSetState* DataOf(WorkerId worker) const;
  int64_t tokens_per_sample() const { return data_.tokens_per_sample(); }
  int64_t trained_samples() const { return state_.trained_samples; }
  LedgerState state() const;

 private:
  // The place of a round among those that the job asks for, which schedules follow.
  int64_t PlaceOf(Round round) const;
  // Returns the learning rate of a step of a round with so many local steps.
  double LearningRate(Round round, int step, int steps) const;
  // Returns the samples of all members of a roster of `count` in each local step.
  int64_t RoundSamplesPerStep(int count) const;
  int64_t HeldoutSamplesOf(absl::Span<const size_t> data_sets) const;
  // The evaluation set, cut over the data sets.
  std::vector<EvaluationCourse::Part> EvaluationParts(absl::Span<const size_t> data_sets) const;
  std::vector<size_t> DataSetsOf(absl::Span<const RosterMember> roster) const;
  // Cuts each part over the members that have its data set.
  void CutEvaluation(absl::Span<const EvaluationCourse::Part> parts, Work& work) const;

  JobSpec job_;
  LedgerState state_;  // data_ has the data sets
  DataSets data_;
  EvaluationCourse evaluations_;
  bool is_evaluation_due_ = false;
  int64_t evaluated_place_ = 0;  // see Memory
};

}  // namespace lodestar
