#include "server/coordinator/work_ledger.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lodestar {
namespace {

std::string DatasetText(const DatasetClaim& claim) {
  return absl::StrCat("fingerprint ", claim.fingerprint, ", ", claim.num_train_samples,
                      " training and ", claim.num_heldout_samples, " held-out samples of ",
                      claim.tokens_per_sample, " tokens");
}

bool IsOwnBusiness(const DatasetClaim& claim) {
  return claim.own_partition || claim.fingerprint.empty();
}

}  // namespace

absl::Status WorkLedger::AdmitDataset(const DatasetClaim& claim, bool may_replace) {
  if (claim.num_train_samples < 0 || claim.num_heldout_samples < 0 || claim.tokens_per_sample < 0 ||
      (!claim.fingerprint.empty() && claim.num_train_samples == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data set without training samples or with negative sizes: ", DatasetText(claim),
        "; check --data"));
  }
  if (!state_.dataset.has_value() || (may_replace && state_.next_round == 0)) {
    state_.dataset = claim;
    return absl::OkStatus();
  }
  const DatasetClaim& job = *state_.dataset;
  if (IsOwnBusiness(claim) || IsOwnBusiness(job) || claim == job) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "data set differs from the job's: this worker has ", DatasetText(claim), "; the job has ",
      DatasetText(job), "; give the same data under --data, or --data_partition=own"));
}

int WorkLedger::max_roster() const {
  if (job_.global_batch_size == 0) return std::numeric_limits<int>::max();
  return static_cast<int>(
      std::min<int64_t>(job_.global_batch_size, std::numeric_limits<int>::max()));
}

WorkLedger::Work WorkLedger::OpenRound(ViewId view, absl::Span<const RosterMember> roster,
                                       Version min_version) {
  LODESTAR_CHECK(!is_exhausted() && !roster.empty()) << "round " << state_.next_round;
  const int64_t round = state_.next_round++;
  const int steps = job_.local_steps;
  const int count = static_cast<int>(roster.size());
  Work work;
  work.plan = {Round(round),
               view,
               {roster.begin(), roster.end()},
               job_.schedule.At(static_cast<double>(round))};
  Grant grant;
  grant.kind = Grant::Kind::kTrain;
  grant.round = Round(round);
  grant.view = view;
  grant.local_steps = steps;
  grant.min_version = min_version;
  grant.total_rounds = job_.schedule.total_rounds;
  for (int step = 0; step < steps; ++step) {
    grant.learning_rates.push_back(
        job_.schedule.At(static_cast<double>(round) + static_cast<double>(step) / steps));
  }
  for (int i = 0; i < count; ++i) {
    grant.first_sample = state_.next_sample;
    grant.num_samples = SamplesPerStep(i, count) * steps;
    state_.next_sample += grant.num_samples;
    work.plan.roster[i].num_samples = grant.num_samples;
    work.grants.push_back(grant);
  }
  if (round > 0 && job_.eval_every > 0 && round % job_.eval_every == 0) CutEvaluation(work.grants);
  return work;
}

WorkLedger::Work WorkLedger::OpenFinalEvaluation(ViewId view, absl::Span<const RosterMember> roster,
                                                 Round round, Version min_version) const {
  LODESTAR_CHECK(!roster.empty()) << "final evaluation";
  Work work;
  work.plan = {round, view, {roster.begin(), roster.end()}, 0.0};
  Grant grant;
  grant.kind = Grant::Kind::kEvaluate;
  grant.round = round;
  grant.view = view;
  grant.first_sample = state_.next_sample;
  grant.min_version = min_version;
  grant.total_rounds = job_.schedule.total_rounds;
  work.grants.assign(roster.size(), grant);
  CutEvaluation(work.grants);
  return work;
}

bool WorkLedger::needs_final_evaluation() const {
  return evaluation_set_size() > 0 && state_.final_evaluation_round < state_.next_round;
}

int64_t WorkLedger::evaluation_set_size() const {
  const int64_t heldout = state_.dataset.has_value() ? state_.dataset->num_heldout_samples : 0;
  return job_.eval_samples == 0 ? heldout : std::min(job_.eval_samples, heldout);
}

double WorkLedger::epoch() const {
  if (!state_.dataset.has_value() || state_.dataset->num_train_samples == 0) return 0.0;
  return static_cast<double>(state_.next_sample) /
         static_cast<double>(state_.dataset->num_train_samples);
}

int64_t WorkLedger::SamplesPerStep(int index, int count) const {
  if (job_.global_batch_size == 0) return job_.batch_size;
  return job_.global_batch_size / count + (index < job_.global_batch_size % count ? 1 : 0);
}

void WorkLedger::CutEvaluation(std::vector<Grant>& grants) const {
  const int64_t size = evaluation_set_size();
  const auto count = static_cast<int64_t>(grants.size());
  const int64_t share = size / count;
  const int64_t remainder = size % count;
  for (int64_t i = 0; i < count; ++i) {
    grants[i].evaluation_set_size = size;
    grants[i].first_heldout_sample = i * share + std::min(i, remainder);
    grants[i].num_heldout_samples = share + (i < remainder ? 1 : 0);
  }
}

}  // namespace lodestar
