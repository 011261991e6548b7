// SPDX-License-Identifier: Apache-2.0

// Hands out the data: which worker gets which samples of a round with which learning rates, and
// which workers evaluate the held-out samples, and when. Pure: the coordinator serializes calls.
//
// The samples of a round depend only on the state, on the number of members, and on which member
// has which data set. With shared data, this means:
// - The global batch of a round does not depend on which members compute it.
// - A restored ledger continues with the same grants.
//
// With --balance=speed, the speeds of the members also decide which member computes which samples
// of the batch. If each member has rounds of its own, its speed decides how many samples a round
// has.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

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
  // A round to open: its plan, and one grant for each member of its roster, in the same order.
  struct Work {
    sync::RoundPlan plan;
    std::vector<messages::Grant> grants;
    // The members whose grants have a weight, and no samples.
    std::set<WorkerId> without_samples = {};
  };

  // What this object knows beside the job.
  struct Memory {
    checkpoints::LedgerState state;  // without data sets, which are in `data`
    DataSets::Memory data;
    EvaluationCourse::Memory evaluations;
    bool is_evaluation_due = false;
    // PlaceOf() of the newest round with which an evaluation was due.
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

  // AdmitWorker() must be called before the worker is in a roster, and ReleaseWorker() when its
  // life ends. For the result of AdmitWorker() see DataSets::Admit().
  std::optional<DataRefusal> AdmitWorker(WorkerId worker, absl::string_view name,
                                         const messages::DatasetInfo& data) {
    return data_.Admit(worker, name, data);
  }
  void ReleaseWorker(WorkerId worker);

  // Returns the maximum number of members of a round. With more members, some would get no sample.
  int max_roster() const;
  // Says whether members get samples to compute on. With kNo, they only contribute the steps of
  // earlier grants. kNo is only possible with DefersContributions().
  enum class Computes : uint8_t { kYes, kNo };
  // Opens the next round and advances the cursors. `roster` is ascending by worker. Requires:
  // !is_exhausted().
  // - Without DefersContributions(), fills in num_samples of each member in the plan.
  // - With DefersContributions(), the caller has set num_samples to the number of samples in the
  //   member's contribution to this round. In the job's last round, and with kNo, the grants then
  //   have no samples.
  // Members in `without_samples` get a grant without samples, unless the job has local steps.
  Work OpenRound(ViewId view, absl::Span<const sync::RosterMember> roster, Round min_round,
                 Computes computes = Computes::kYes, const MemberSpeeds& speeds = {},
                 const std::set<WorkerId>& without_samples = {});
  // Hands out as many samples again as `grant` has, and advances the cursors. Returns a grant of
  // the same round with them.
  messages::Grant Extend(WorkerId worker, const messages::Grant& grant);
  // Opens a round that carries out this order of a site. It is numbered and cut as in OpenRound().
  // Requires: all members have the same data set, and there are at most max_roster_of(order)
  // members.
  Work OpenOrdered(const SiteOrder& order, ViewId view, absl::Span<const sync::RosterMember> roster,
                   Round min_round, const MemberSpeeds& speeds = {});
  static int max_roster_of(const SiteOrder& order);
  // Returns the data set that all members share. Not set means that there are no members.
  std::optional<messages::DatasetInfo> SharedData() const;
  // Opens the final evaluation, which cuts the evaluation set over the roster. `round` is above all
  // rounds of training.
  Work OpenFinalEvaluation(ViewId view, absl::Span<const sync::RosterMember> roster, Round round,
                           Round min_round) const;
  void FinishFinalEvaluation() { state_.final_evaluation_round = state_.next_round; }
  // Ends a round that OpenRound() opened. `num_samples` is the number of samples that were reported
  // for it. `sums` are the sums of its held-out samples. If the round completes an evaluation,
  // returns its result.
  std::optional<HeldoutSums> CloseRound(Round round, int64_t num_samples, const HeldoutSums& sums);
  // Ends a round that OpenRound() opened, without any report, because all its workers are gone. The
  // job gets one more round in its place. PlaceOf() of later rounds falls by one.
  void LoseRound(Round round);

  Round next_round() const { return Round(state_.next_round); }
  // Returns the number of rounds that the job asks for, plus the number of rounds lost so far.
  int64_t total_rounds() const { return job_.schedule.total_rounds + state_.lost_rounds; }
  int64_t lost_rounds() const { return state_.lost_rounds; }
  // Multiplies the learning rate of later grants by `factor`, because an operator has ordered it.
  void MultiplyLearningRateScale(double factor) {
    state_.learning_rate_scale *= factor;
    state_.scale_by_operators *= factor;
  }
  bool is_exhausted() const { return state_.next_round >= total_rounds(); }
  // Returns true if there are held-out samples, and no final evaluation has been done since the
  // last round was opened.
  bool needs_final_evaluation() const;
  // Returns the workers with held-out samples whose data set no member of the roster has. If only
  // the roster evaluates, the held-out samples of these workers are missing.
  std::vector<WorkerId> LackingFor(absl::Span<const sync::RosterMember> roster) const;
  int64_t evaluation_set_size() const;
  // Returns the number of held-out samples of all data sets that workers have. An evaluation uses
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
  // Returns the number of the round minus the number of rounds lost so far. Schedules use this
  // number.
  int64_t PlaceOf(Round round) const;
  // Returns the learning rate of the local step `step` in a round with `steps` local steps.
  double LearningRate(Round round, int step, int steps) const;
  // Returns the number of samples that `count` members of a round compute on in one local step, all
  // together.
  int64_t RoundSamplesPerStep(int count) const;
  int64_t HeldoutSamplesOf(absl::Span<const size_t> data_sets) const;
  // Returns how many samples of each data set an evaluation uses.
  std::vector<EvaluationCourse::Part> EvaluationParts(absl::Span<const size_t> data_sets) const;
  std::vector<size_t> DataSetsOf(absl::Span<const sync::RosterMember> roster) const;
  // Cuts each part of the evaluation over the members that have its data set.
  void CutEvaluation(absl::Span<const EvaluationCourse::Part> parts, Work& work) const;

  job::JobSpec job_;
  checkpoints::LedgerState state_;  // without data sets, which are in data_
  DataSets data_;
  EvaluationCourse evaluations_;
  bool is_evaluation_due_ = false;
  int64_t evaluated_place_ = 0;  // see Memory
};

}  // namespace lodestar::rounds
