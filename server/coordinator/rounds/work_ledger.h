// SPDX-License-Identifier: Apache-2.0

// Hands out the data: which worker gets which samples of a round, with which learning rates, and
// which workers evaluate the held-out sets, and when. Pure: the coordinator serializes calls.
//
// The samples of a round depend only on the state, the number of members and which member has which
// data set. So with shared data the global batch of a round does not depend on which members
// compute it, and a restored state continues with the same grants. With --balance=speed, the speeds
// of the members also decide which member computes which samples of the batch. If each member has
// rounds of its own, its speed decides how many samples a round has.
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

namespace lodestar::rounds {

class WorkLedger {
 public:
  // A round to open: its plan, and one grant for each member of the plan's roster, in the roster's
  // order.
  struct Work {
    sync::RoundPlan plan;
    std::vector<messages::Grant> grants;
  };

  // What this object knows beside the job.
  struct Memory {
    checkpoints::LedgerState state;  // without data sets, which are in `data`
    DataSets::Memory data;
    EvaluationCourse::Memory evaluations;
    bool is_evaluation_due = false;
    // Place, see PlaceOf(), of the newest round with which an evaluation was due.
    int64_t evaluated_place = 0;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  WorkLedger(const job::JobSpec& job, const checkpoints::LedgerState& state)
      : job_(job), state_(state), data_(state.data_sets) {}
  // Requires: memory.data satisfies what DataSets(Memory) requires.
  WorkLedger(const job::JobSpec& job, Memory memory)
      : job_(job),
        state_(std::move(memory.state)),
        data_(std::move(memory.data)),
        evaluations_(std::move(memory.evaluations)),
        is_evaluation_due_(memory.is_evaluation_due),
        evaluated_place_(memory.evaluated_place) {}
  Memory memory() const;

  // A worker must be admitted before it is in a roster, and released when its life ends. Errors of
  // AdmitWorker(): those of DataSets::Admit().
  absl::Status AdmitWorker(WorkerId worker, absl::string_view name,
                           const messages::DatasetInfo& data) {
    return data_.Admit(worker, name, data);
  }
  void ReleaseWorker(WorkerId worker);

  // Returns the maximum number of members of a round, so that each gets at least one sample.
  int max_roster() const;
  // kNo means that members get no samples to compute on, and only contribute the steps of earlier
  // grants. Used only if DefersContributions().
  enum class Computes : uint8_t { kYes, kNo };
  // Opens the next round and advances the cursors. `roster` is ascending by worker. Without
  // DefersContributions(), num_samples of each member of the roster is filled in. With
  // DefersContributions(), num_samples is given: the number of samples of the member's contribution
  // to this round. The job's last round and a round with kNo then give members nothing to compute.
  // Requires: !is_exhausted().
  Work OpenRound(ViewId view, absl::Span<const sync::RosterMember> roster, Round min_round,
                 Computes computes = Computes::kYes, const MemberSpeeds& speeds = {});
  // Opens a round for this order of a site. Rounds and samples are numbered and cut as in
  // OpenRound(). Requires: all members have the same data set, and there are at most
  // max_roster_of(order) members.
  Work OpenOrdered(const SiteOrder& order, ViewId view, absl::Span<const sync::RosterMember> roster,
                   Round min_round, const MemberSpeeds& speeds = {});
  static int max_roster_of(const SiteOrder& order);
  // Returns the data set that the members share. Not set means that there are no members.
  std::optional<messages::DatasetInfo> SharedData() const;
  // Cuts the evaluation set over the roster. `round` is at least the number of the job's last
  // round.
  Work OpenFinalEvaluation(ViewId view, absl::Span<const sync::RosterMember> roster, Round round,
                           Round min_round) const;
  void FinishFinalEvaluation() { state_.final_evaluation_round = state_.next_round; }
  // Ends a round of OpenRound(). `num_samples` are its reported samples, and `sums` are those of
  // its held-out samples. Returns the result of an evaluation that the end of this round completes.
  std::optional<HeldoutSums> CloseRound(Round round, int64_t num_samples, const HeldoutSums& sums);
  // Ends a round of OpenRound() that no worker has reported: all its workers are gone. The round
  // does not count among the rounds that the job asks for. The places of later rounds go down by
  // one, see PlaceOf().
  void LoseRound(Round round);

  Round next_round() const { return Round(state_.next_round); }
  // Returns the number of rounds that the job asks for, plus the number of rounds lost so far.
  int64_t total_rounds() const { return job_.schedule.total_rounds + state_.lost_rounds; }
  int64_t lost_rounds() const { return state_.lost_rounds; }
  // Multiplies the learning rate of later grants by `factor`, as an operator wants.
  void MultiplyLearningRateScale(double factor) {
    state_.learning_rate_scale *= factor;
    state_.scale_by_operators *= factor;
  }
  bool is_exhausted() const { return state_.next_round >= total_rounds(); }
  // Returns true if there are held-out samples, and the final evaluation after the rounds opened so
  // far has not been done.
  bool needs_final_evaluation() const;
  // Returns the workers with held-out samples whose data set no member of the roster has. An
  // evaluation by the roster leaves their held-out samples out.
  std::vector<WorkerId> LackingFor(absl::Span<const sync::RosterMember> roster) const;
  int64_t evaluation_set_size() const;
  // Returns the number of held-out samples of all data sets that workers have. An evaluation takes
  // evaluation_set_size() of them.
  int64_t num_heldout_samples() const;
  // Returns the learning rate of a local step of a round. The rate includes the changes by
  // rollbacks and operators.
  double LearningRate(Round round, int step) const {
    return LearningRate(round, step, job::StepsOfWindow(job_, round));
  }
  // Returns DataSets::Epoch(). 0 means not known.
  double epoch() const { return data_.Epoch(); }
  // Returns the data set of the worker. Null means that the worker is not admitted.
  const checkpoints::DataSetState* DataOf(WorkerId worker) const;
  int64_t tokens_per_sample() const { return data_.tokens_per_sample(); }
  int64_t trained_samples() const { return state_.trained_samples; }
  checkpoints::LedgerState state() const;

 private:
  // Returns the round's place, which schedules use: the round number without the rounds lost so
  // far.
  int64_t PlaceOf(Round round) const;
  // Returns the learning rate of local step `step` of a round with `steps` local steps.
  double LearningRate(Round round, int step, int steps) const;
  // Returns the number of samples in each local step of a roster of `count` members, over all
  // members.
  int64_t RoundSamplesPerStep(int count) const;
  int64_t HeldoutSamplesOf(absl::Span<const size_t> data_sets) const;
  // Cuts the evaluation set over the data sets.
  std::vector<EvaluationCourse::Part> EvaluationParts(absl::Span<const size_t> data_sets) const;
  std::vector<size_t> DataSetsOf(absl::Span<const sync::RosterMember> roster) const;
  // Cuts each part over the members that have its data set.
  void CutEvaluation(absl::Span<const EvaluationCourse::Part> parts, Work& work) const;

  job::JobSpec job_;
  checkpoints::LedgerState state_;  // without data sets, which are in data_
  DataSets data_;
  EvaluationCourse evaluations_;
  bool is_evaluation_due_ = false;
  int64_t evaluated_place_ = 0;  // see Memory
};

}  // namespace lodestar::rounds
