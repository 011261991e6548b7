// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/rounds/work_ledger.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "absl/numeric/int128.h"
#include "common/runtime/check.h"

namespace lodestar::rounds {

void WorkLedger::ReleaseWorker(WorkerId worker) {
  data_.Release(worker);
  evaluations_.KeepOnly(data_.Present());
}

int WorkLedger::max_roster() const {
  if (job_.global_batch_size == 0) return std::numeric_limits<int>::max();
  return static_cast<int>(
      std::min<int64_t>(job_.global_batch_size, std::numeric_limits<int>::max()));
}

WorkLedger::Work WorkLedger::OpenRound(ViewId view, absl::Span<const sync::RosterMember> roster,
                                       Round min_round, Computes computes,
                                       const MemberSpeeds& speeds,
                                       const std::set<WorkerId>& without_samples) {
  LODESTAR_CHECK(!is_exhausted() && !roster.empty()) << "round " << state_.next_round;
  const int64_t round = state_.next_round++;
  const bool is_deferred = job::DefersContributions(job_);
  // No later round could take the steps that members compute in the last round. So the last round
  // has none.
  const bool is_idle = is_deferred && (computes == Computes::kNo || is_exhausted());
  const int count = static_cast<int>(roster.size());
  std::vector<double> roster_speeds = speeds.roster;
  roster_speeds.resize(count);
  int steps = is_idle ? 0 : job::StepsOfWindow(job_, Round(round));
  if (!job::HasRosters(job_)) {
    steps = CutSteps(job_.balance, steps, roster_speeds.front(), speeds.fastest);
  }
  const std::vector<int64_t> step_samples =
      CutStep(job_.balance, RoundSamplesPerStep(count), roster_speeds);
  Work work;
  work.plan = {
      Round(round), view, {roster.begin(), roster.end()}, LearningRate(Round(round), /*step=*/0)};
  messages::Grant grant;
  grant.kind = messages::Grant::Kind::kTrain;
  grant.round = Round(round);
  grant.view = view;
  grant.local_steps = steps;
  grant.min_round = min_round;
  grant.total_rounds = total_rounds();
  if (is_deferred) grant.round_samples = work.plan.total_samples();
  for (int step = 0; step < steps; ++step) {
    grant.learning_rates.push_back(LearningRate(Round(round), step, steps));
  }
  std::map<DataSets::Index, int64_t> begins;  // position of the round's first sample in each set
  for (int i = 0; i < count; ++i) {
    grant.num_samples = step_samples[i] * steps;
    grant.first_position = state_.next_sample;
    const DataSets::Index set = data_.SetOf(roster[i].worker);
    grant.round_first_sample = begins.try_emplace(set, data_.at(set).next_sample).first->second;
    if (!job::HasLocalSteps(job_) && without_samples.contains(roster[i].worker)) {
      grant.first_sample = 0;
      work.without_samples.insert(roster[i].worker);
    } else {
      grant.first_sample = data_.Take(set, grant.num_samples);
      state_.next_sample += grant.num_samples;
    }
    if (!is_deferred) work.plan.roster[i].num_samples = grant.num_samples;
    work.grants.push_back(grant);
  }
  const int64_t place = PlaceOf(Round(round));
  if (job_.eval_every > 0 && place % job_.eval_every == 0 && place > evaluated_place_) {
    is_evaluation_due_ = true;
    evaluated_place_ = place;
  }
  if (is_evaluation_due_ && evaluations_.can_begin()) {
    is_evaluation_due_ = false;
    // If the roster has its maximum size, the batch has no samples for other workers. Data sets
    // that only other workers have are not trained on, so they are not evaluated.
    const bool is_full = static_cast<int>(roster.size()) == max_roster();
    evaluations_.Begin(EvaluationParts(is_full ? DataSetsOf(roster) : data_.Present()));
  }
  CutEvaluation(evaluations_.Take(Round(round), DataSetsOf(roster)), work);
  return work;
}

messages::Grant WorkLedger::Extend(WorkerId worker, const messages::Grant& grant) {
  LODESTAR_CHECK(!job::HasLocalSteps(job_)) << "round " << grant.round.value();
  messages::Grant more = grant;
  more.first_sample = data_.Take(data_.SetOf(worker), grant.num_samples);
  more.first_position = state_.next_sample;
  state_.next_sample += grant.num_samples;
  more.num_heldout_samples = 0;
  return more;
}

int WorkLedger::max_roster_of(const SiteOrder& order) {
  // In an evaluation, members may have no samples. So any number of members is possible.
  if (order.kind == SiteOrder::Kind::kEvaluate) return std::numeric_limits<int>::max();
  const auto steps = static_cast<int64_t>(order.learning_rates.size());
  return static_cast<int>(
      std::min<int64_t>(order.num_samples / steps, std::numeric_limits<int>::max()));
}

std::optional<messages::DatasetInfo> WorkLedger::SharedData() const {
  const std::vector<size_t> sets = data_.Present();
  if (sets.empty()) return std::nullopt;
  return data_.at(sets.front()).info;
}

WorkLedger::Work WorkLedger::OpenOrdered(const SiteOrder& order, ViewId view,
                                         absl::Span<const sync::RosterMember> roster,
                                         Round min_round, const MemberSpeeds& speeds) {
  LODESTAR_CHECK(!roster.empty()) << "round " << state_.next_round;
  const Round round(state_.next_round++);
  const bool is_training = order.kind == SiteOrder::Kind::kTrain;
  Work work;
  work.plan = {round, view, {roster.begin(), roster.end()}, 0.0};
  messages::Grant grant;
  grant.kind = is_training ? messages::Grant::Kind::kTrain : messages::Grant::Kind::kEvaluate;
  grant.round = round;
  grant.view = view;
  // Workers may already have pulled weights for this grant. If the weights are new, they must
  // discard what they pulled. They do so if the min_round of the grant differs.
  grant.min_round = order.has_new_weights ? Round(0) : min_round;
  grant.total_rounds = total_rounds();
  if (!is_training) {
    work.grants.assign(roster.size(), grant);
    const std::vector<int64_t> parts =
        CutEqually(order.num_heldout_samples, static_cast<int>(roster.size()));
    int64_t first = order.first_heldout_sample;
    for (size_t i = 0; i < roster.size(); ++i) {
      work.grants[i].evaluation_set_size = order.evaluation_set_size;
      work.grants[i].first_heldout_sample = first;
      work.grants[i].num_heldout_samples = parts[i];
      first += parts[i];
    }
    return work;
  }
  const auto steps = static_cast<int>(order.learning_rates.size());
  work.plan.learning_rate = order.learning_rates.front();
  grant.local_steps = steps;
  grant.learning_rates = order.learning_rates;
  std::vector<double> roster_speeds = speeds.roster;
  roster_speeds.resize(roster.size());
  const std::vector<int64_t> parts =
      CutStep(job_.balance, order.num_samples / steps, roster_speeds);
  int64_t taken = 0;
  for (size_t i = 0; i < roster.size(); ++i) {
    grant.num_samples = parts[i] * steps;
    grant.first_sample = order.first_sample + taken;
    grant.round_first_sample = order.first_sample;
    grant.first_position = order.first_position + taken;
    taken += grant.num_samples;
    data_.Take(data_.SetOf(roster[i].worker), grant.num_samples);
    work.plan.roster[i].num_samples = grant.num_samples;
    work.grants.push_back(grant);
  }
  state_.next_sample += taken;
  return work;
}

WorkLedger::Work WorkLedger::OpenFinalEvaluation(ViewId view,
                                                 absl::Span<const sync::RosterMember> roster,
                                                 Round round, Round min_round) const {
  LODESTAR_CHECK(!roster.empty()) << "final evaluation";
  Work work;
  work.plan = {round, view, {roster.begin(), roster.end()}, 0.0};
  messages::Grant grant;
  grant.kind = messages::Grant::Kind::kEvaluate;
  grant.round = round;
  grant.view = view;
  grant.min_round = min_round;
  grant.total_rounds = total_rounds();
  work.grants.assign(roster.size(), grant);
  CutEvaluation(EvaluationParts(DataSetsOf(roster)), work);
  return work;
}

std::optional<HeldoutSums> WorkLedger::CloseRound(Round round, int64_t num_samples,
                                                  const HeldoutSums& sums) {
  state_.trained_samples += num_samples;
  return evaluations_.Return(round, sums);
}

void WorkLedger::LoseRound(Round round) {
  ++state_.lost_rounds;
  // If the lost round carried a part of an evaluation, the next round begins the evaluation again.
  if (evaluations_.memory().travelling.contains(round)) is_evaluation_due_ = true;
  evaluations_.Lose(round);
}

double WorkLedger::LearningRate(Round round, int step, int steps) const {
  const double share = 1.0 / steps;
  return state_.learning_rate_scale *
         job_.schedule.At(static_cast<double>(PlaceOf(round)) + static_cast<double>(step) / steps,
                          share);
}

int64_t WorkLedger::PlaceOf(Round round) const {
  return std::max<int64_t>(round.value() - state_.lost_rounds, 0);
}

bool WorkLedger::needs_final_evaluation() const {
  return evaluation_set_size() > 0 && state_.final_evaluation_round < state_.next_round;
}

std::vector<WorkerId> WorkLedger::LackingFor(absl::Span<const sync::RosterMember> roster) const {
  const std::vector<size_t> there = DataSetsOf(roster);
  std::vector<WorkerId> lacking;
  for (const auto& [worker, data_set] : data_.workers()) {
    const bool is_needed = data_.at(data_set).info.num_heldout_samples > 0;
    if (is_needed && !std::binary_search(there.begin(), there.end(), data_set)) {
      lacking.push_back(worker);
    }
  }
  return lacking;
}

int64_t WorkLedger::evaluation_set_size() const {
  int64_t size = 0;
  for (const EvaluationCourse::Part& part : EvaluationParts(data_.Present())) {
    size += part.num_samples;
  }
  return size;
}

int64_t WorkLedger::num_heldout_samples() const { return HeldoutSamplesOf(data_.Present()); }

const checkpoints::DataSetState* WorkLedger::DataOf(WorkerId worker) const {
  auto entry = data_.workers().find(worker);
  return entry == data_.workers().end() ? nullptr : &data_.at(entry->second);
}

WorkLedger::Memory WorkLedger::memory() const {
  Memory memory = {state_, data_.memory(), evaluations_.memory(), is_evaluation_due_,
                   evaluated_place_};
  memory.state.data_sets.clear();  // out of date: the data sets that the ledger began with
  return memory;
}

checkpoints::LedgerState WorkLedger::state() const {
  checkpoints::LedgerState state = state_;
  state.data_sets = data_.Export();
  return state;
}

int64_t WorkLedger::RoundSamplesPerStep(int count) const {
  return job_.global_batch_size > 0 ? job_.global_batch_size : job_.batch_size * count;
}

int64_t WorkLedger::HeldoutSamplesOf(absl::Span<const size_t> data_sets) const {
  int64_t total = 0;
  for (const size_t set : data_sets) total += data_.at(set).info.num_heldout_samples;
  return total;
}

// Cuts the evaluation set in proportion to the sizes of the data sets. The parts add up to exactly
// the wanted number of samples.
std::vector<EvaluationCourse::Part> WorkLedger::EvaluationParts(
    absl::Span<const size_t> data_sets) const {
  const int64_t total = HeldoutSamplesOf(data_sets);
  const int64_t wanted = job_.eval_samples == 0 ? total : std::min(job_.eval_samples, total);
  std::vector<EvaluationCourse::Part> parts;
  int64_t places = 0;
  int64_t given = 0;
  for (const size_t set : data_sets) {
    places += data_.at(set).info.num_heldout_samples;
    const int64_t due =
        total == 0 ? 0 : static_cast<int64_t>(absl::int128(wanted) * places / total);
    parts.push_back({set, due - given});
    given = due;
  }
  return parts;
}

std::vector<size_t> WorkLedger::DataSetsOf(absl::Span<const sync::RosterMember> roster) const {
  std::set<size_t> data_sets;
  for (const sync::RosterMember& member : roster) data_sets.insert(data_.SetOf(member.worker));
  return {data_sets.begin(), data_sets.end()};
}

void WorkLedger::CutEvaluation(absl::Span<const EvaluationCourse::Part> parts, Work& work) const {
  for (const EvaluationCourse::Part& part : parts) {
    std::vector<messages::Grant*> grants;
    for (size_t i = 0; i < work.grants.size(); ++i) {
      if (data_.SetOf(work.plan.roster[i].worker) == part.data_set) {
        grants.push_back(&work.grants[i]);
      }
    }
    const auto count = static_cast<int64_t>(grants.size());
    const int64_t share = part.num_samples / count;
    const int64_t remainder = part.num_samples % count;
    for (int64_t i = 0; i < count; ++i) {
      grants[i]->evaluation_set_size = part.num_samples;
      grants[i]->first_heldout_sample = i * share + std::min(i, remainder);
      grants[i]->num_heldout_samples = share + (i < remainder ? 1 : 0);
    }
  }
}

}  // namespace lodestar::rounds
