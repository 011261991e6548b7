// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/overlapped_rounds.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"

namespace lodestar::trainer {
namespace {

// A pull, and the registration that it uses. Both live equally long.
struct RegisteredPull {
  std::shared_ptr<const messages::Registration> registration;
  WeightsPull pull;
};

absl::Status AbandonedError() {
  return absl::CancelledError(
      "this worker gave up the local steps of its round, because its exchange with the servers "
      "ended");
}

}  // namespace

absl::StatusOr<std::unique_ptr<OverlappedRounds>> OverlappedRounds::Create(
    const job::JobSpec& job, const RoundRunnerDeps& deps) {
  auto rounds = std::unique_ptr<OverlappedRounds>(new OverlappedRounds(job, deps));
  kernels::Device* const device = deps.device;
  const kernels::Buf local = deps.model->parameters();
  const size_t bytes = kernels::DTypeBytes(local.dtype) * local.num_elements;
  ASSIGN_OR_RETURN(rounds->global_memory_, model::DeviceMemory::Allocate(device, bytes));
  ASSIGN_OR_RETURN(rounds->contributed_memory_, model::DeviceMemory::Allocate(device, bytes));
  rounds->global_ = kernels::Buf{rounds->global_memory_.data(), local.dtype, local.num_elements};
  rounds->contributed_ =
      kernels::Buf{rounds->contributed_memory_.data(), local.dtype, local.num_elements};
  ASSIGN_OR_RETURN(rounds->exchange_,
                   ExchangeState::Create(job, deps.model->layout(), device, rounds->global_,
                                         rounds->contributed_, &rounds->timeline_));
  rounds->skipped_.emplace(rounds->exchange_->contribution()->encoding());
  ASSIGN_OR_RETURN(rounds->merge_, MakeWeightsMerge(job, {.device = device,
                                                          .local = local,
                                                          .global = rounds->global_,
                                                          .contributed = rounds->contributed_}));
  ASSIGN_OR_RETURN(rounds->steps_, LocalSteps::Create(job, rounds->deps_, &rounds->timeline_));
  return rounds;
}

OverlappedRounds::~OverlappedRounds() { StopWindow(); }

bool OverlappedRounds::GoesOn(const LifeContext& life, Round round) const {
  return progress_.has_value() &&
         progress_->server_incarnation == life.registration->server_incarnation &&
         progress_->life == life.registration->life && progress_->next_round == round;
}

std::optional<OverlappedRounds::Acknowledged> OverlappedRounds::StopWindow() {
  std::shared_ptr<WeightsPull> pull;
  {
    absl::MutexLock lock(&mutex_);
    is_abandoned_ = true;
    pull = std::exchange(pull_, nullptr);
  }
  if (pull != nullptr) pull->Cancel();
  if (window_thread_.joinable()) window_thread_.join();
  progress_.reset();
  absl::MutexLock lock(&mutex_);
  connection_.reset();
  outcome_.reset();
  is_abandoned_ = false;
  return std::exchange(acknowledged_, std::nullopt);
}

void OverlappedRounds::Abandon() {
  const std::optional<Acknowledged> acknowledged = StopWindow();
  // This exchange will not be merged, but the servers have counted its contribution. So the
  // residual must be updated.
  if (acknowledged.has_value()) Learn(*acknowledged);
}

void OverlappedRounds::Learn(const Acknowledged& acknowledged) {
  if (acknowledged.contributed != nullptr) acknowledged.contributed->Commit(acknowledged.late);
}

absl::Status OverlappedRounds::KeepOptimizerState() {
  Abandon();
  return steps_->KeepState();
}

void OverlappedRounds::EndLife() {
  std::shared_ptr<WeightsPull> pull;
  {
    absl::MutexLock lock(&mutex_);
    connection_.reset();
    pull = std::exchange(pull_, nullptr);
  }
  // A window that waits for this pull begins another pull once there is a new connection.
  if (pull != nullptr) pull->Cancel();
}

absl::Status OverlappedRounds::PullWeights(const LifeContext& life, Round min_round) {
  Abandon();
  messages::RoundReport report;
  RETURN_IF_ERROR(Begin(life, min_round, &report));
  progress_.reset();
  return absl::OkStatus();
}

absl::StatusOr<messages::RoundReport> OverlappedRounds::Evaluate(const LifeContext& life,
                                                                 const messages::Grant& grant) {
  const absl::Time start = deps_.clock->Now();
  messages::RoundReport report;
  report.round = grant.round;
  RETURN_IF_ERROR(PullWeights(life, grant.min_round));
  report.communication = deps_.clock->Now() - start;
  RETURN_IF_ERROR(EvaluateHeldout(life, grant, /*pull=*/nullptr, &report));
  report.compute = report.evaluation;
  return report;
}

absl::StatusOr<messages::RoundReport> OverlappedRounds::RunRound(const LifeContext& life,
                                                                 const messages::Grant& grant) {
  if (grant.kind == messages::Grant::Kind::kEvaluate) return Evaluate(life, grant);
  if (GoesOn(life, grant.round)) {
    absl::MutexLock lock(&mutex_);
    if (!connection_.has_value()) connection_ = {registration_, life.transport};
  } else {
    Abandon();
  }
  messages::RoundReport report;
  report.round = grant.round;
  RETURN_IF_ERROR(EndWindow(&report));
  ASSIGN_OR_RETURN(std::optional<messages::RoundReport> delivered,
                   SettleResidual(life, grant.round));
  if (delivered.has_value()) {
    Abandon();
    delivered->leaves_nothing_in_hand = true;
    return *delivered;
  }
  RETURN_IF_ERROR(timeline_.EndRound());
  RETURN_IF_ERROR(timeline_.BeginRound());
  if (!progress_.has_value()) RETURN_IF_ERROR(Begin(life, grant.min_round, &report));
  const absl::Time start = deps_.clock->Now();
  RETURN_IF_ERROR(EvaluateGlobal(life, grant, &report));
  const std::vector<uint32_t> due = fragments_->DueIn(grant.round);
  report.base_version = versions_.version(due.front());
  const bool computes = grant.local_steps > 0 && !deps_.stop_requested();
  report.leaves_nothing_in_hand = !computes;
  std::optional<ContributionPush> push;
  RETURN_IF_ERROR(Contribute(life, grant, due, push));
  RETURN_IF_ERROR(Keep(life, *push, report));
  ContributionBytes* const contributed = SamplesInHand() > 0 ? exchange_->contribution() : nullptr;
  if (computes) {
    StartWindow(life, grant, due);
  } else {
    progress_.reset();
  }
  report.compute += deps_.clock->Now() - start;
  if (!computes) WindowEnd::TellCut(grant, 0, "no step of this round had begun");
  const absl::Time made = deps_.clock->Now();
  deps_.on_activity("push");
  ASSIGN_OR_RETURN(const std::vector<uint32_t> late, push->Deliver());
  steps_->window_end().OnHandedIn(deps_.clock->Now() - made);
  ForgetKept();
  OnAcknowledged({contributed, late});
  return report;
}

void OverlappedRounds::OnAcknowledged(Acknowledged acknowledged) {
  last_run_ended_at_ = deps_.clock->Now();
  if (!window_thread_.joinable()) return Learn(acknowledged);
  absl::MutexLock lock(&mutex_);
  acknowledged_ = std::move(acknowledged);
}

absl::Status OverlappedRounds::PushKept(const LifeContext& life, const MadeContribution& made) {
  {
    absl::MutexLock lock(&mutex_);
    if (!connection_.has_value() && registration_ != nullptr) {
      connection_ = {registration_, life.transport};
    }
  }
  ASSIGN_OR_RETURN(const std::vector<uint32_t> late,
                   DeliverAgain(*life.registration, made, life.transport, deps_.clock));
  OnAcknowledged({made.bytes, late});
  return absl::OkStatus();
}

absl::Status OverlappedRounds::Begin(const LifeContext& life, Round min_round,
                                     messages::RoundReport* report) {
  registration_ = std::make_shared<const messages::Registration>(*life.registration);
  fragments_.emplace(registration_->buckets(), job_.fragments);
  {
    absl::MutexLock lock(&mutex_);
    connection_ = {registration_, life.transport};
  }
  WeightsPull pull(*registration_, min_round, AllBuckets(*registration_), exchange_->weights(),
                   exchange_->ShadowFor(*registration_), life.transport, deps_.clock, deps_.trace);
  pull.TellActivity(deps_.on_activity);
  RETURN_IF_ERROR(pull.WaitForAll());
  CountPull();
  ASSIGN_OR_RETURN(const absl::Duration exposed, pull.Exposed());
  report->communication += exposed;
  steps_->window_end().OnPulled(pull.blocked());
  versions_.Reset(pull.versions());
  const kernels::Buf local = deps_.model->parameters();
  deps_.device->Copy(local.data, global_.data,
                     kernels::DTypeBytes(local.dtype) * local.num_elements,
                     kernels::StreamKind::kCompute);
  deps_.model->RefreshNarrowParameters();
  merge_->Begin();
  window_samples_.clear();
  progress_ = {registration_->server_incarnation, registration_->life, Round(0)};
  return absl::OkStatus();
}

absl::Status OverlappedRounds::EndWindow(messages::RoundReport* report) {
  if (!window_thread_.joinable()) return absl::OkStatus();
  const absl::Time asked_at = deps_.clock->Now();
  bool told_waiting = false;
  while (true) {
    deps_.on_activity(told_waiting ? "pull" : "compute");
    absl::MutexLock lock(&mutex_);
    const auto has_news = [this, told_waiting]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return outcome_.has_value() || waits_for_servers_ != told_waiting;
    };
    mutex_.Await(absl::Condition(&has_news));
    if (outcome_.has_value()) break;
    told_waiting = waits_for_servers_;
  }
  window_thread_.join();
  Outcome outcome;
  {
    absl::MutexLock lock(&mutex_);
    outcome = *std::exchange(outcome_, std::nullopt);
  }
  if (!outcome.status.ok()) {
    Abandon();
    return outcome.status;
  }
  report->loss_sum = outcome.sums.loss_sum;
  report->num_predictions = outcome.sums.num_predictions;
  report->num_samples = outcome.sums.num_samples;
  report->compute = outcome.computed;
  report->communication = outcome.waited;
  report->computed_ahead =
      std::max(absl::ZeroDuration(), std::min(outcome.ended_at, asked_at) -
                                         std::max(outcome.begun_at, last_run_ended_at_));
  window_samples_.push_back(outcome.sums.num_samples);
  if (static_cast<int>(window_samples_.size()) > job_.fragments) window_samples_.pop_front();
  return absl::OkStatus();
}

absl::Status OverlappedRounds::EvaluateGlobal(const LifeContext& life, const messages::Grant& grant,
                                              messages::RoundReport* report) {
  if (grant.num_heldout_samples == 0) return absl::OkStatus();
  const kernels::Buf local = deps_.model->parameters();
  const auto move = [&](kernels::Buf to, kernels::Buf from) {
    deps_.device->Copy(to.data, from.data, kernels::DTypeBytes(to.dtype) * to.num_elements,
                       kernels::StreamKind::kCompute);
  };
  // contributed_ is not in use now, so the local weights are stored in it during the evaluation.
  move(contributed_, local);
  move(local, global_);
  deps_.model->RefreshNarrowParameters();
  const absl::Status evaluated = EvaluateHeldout(life, grant, /*pull=*/nullptr, report);
  move(local, contributed_);
  deps_.model->RefreshNarrowParameters();
  return evaluated;
}

int64_t OverlappedRounds::SamplesInHand() const {
  return std::accumulate(window_samples_.begin(), window_samples_.end(), int64_t{0});
}

std::vector<params::ElementRange> OverlappedRounds::RangesOf(
    const std::vector<uint32_t>& due) const {
  std::vector<params::ElementRange> ranges;
  for (const uint32_t bucket : due) {
    const params::ElementRange range = registration_->buckets()[bucket].range;
    if (!ranges.empty() && ranges.back().end == range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

absl::Status OverlappedRounds::Contribute(const LifeContext& life, const messages::Grant& grant,
                                          const std::vector<uint32_t>& due,
                                          std::optional<ContributionPush>& push) {
  const int64_t samples = SamplesInHand();
  const std::vector<params::ElementRange> ranges = RangesOf(due);
  client::ContributionHeader header{
      .round = grant.round, .kind = contribution_kind_, .num_samples = samples};
  ContributionBytes* bytes = exchange_->contribution();
  std::optional<double> share;
  if (samples == 0) {
    header.num_samples = messages::kSkippedSamples;
    bytes = &*skipped_;
  } else {
    share =
        static_cast<double>(samples) / static_cast<double>(std::max(samples, grant.round_samples));
    const kernels::Buf local = deps_.model->parameters();
    for (const params::ElementRange& range : ranges) {
      const auto part = [&range](kernels::Buf vector) {
        return vector.Slice(range.begin, range.size());
      };
      if (contribution_kind_ == messages::ContributionKind::kWeights) {
        deps_.device->Copy(part(contributed_).data, part(local).data,
                           kernels::DTypeBytes(local.dtype) * range.size(),
                           kernels::StreamKind::kCompute);
      } else {
        deps_.device->Subtract(part(contributed_), part(merge_->origin()), part(local));
      }
    }
  }
  push.emplace(*life.registration, header, bytes, &versions_, life.transport, deps_.clock,
               deps_.trace, leaves());
  RETURN_IF_ERROR(push->BucketsReady(due));
  merge_->OnContributed(ranges, share);
  deps_.model->RefreshNarrowParameters();
  return absl::OkStatus();
}

void OverlappedRounds::StartWindow(const LifeContext& life, const messages::Grant& grant,
                                   std::vector<uint32_t> due) {
  progress_->next_round = grant.round + 1;
  {
    absl::MutexLock lock(&mutex_);
    pull_ = BeginPull(grant.round, due);
  }
  window_thread_ = std::thread(
      [this, window = Window{.grant = grant,
                             .server_incarnation = life.registration->server_incarnation,
                             .order = *life.sample_order,
                             .clip_norm = job_.clip_norm,
                             .is_over = life.is_over,
                             .due = std::move(due)}] { RunWindow(window); });
}

void OverlappedRounds::RunWindow(const Window& window) {
  Outcome outcome;
  outcome.begun_at = deps_.clock->Now();
  steps_->Begin(window.server_incarnation, window.grant.round);
  ExposedWait exposed(deps_.device, deps_.clock);
  outcome.status = RunSteps(window, outcome, exposed);
  const absl::StatusOr<absl::Duration> waited = exposed.Total();
  outcome.status.Update(waited.status());
  outcome.ended_at = deps_.clock->Now();
  outcome.waited = waited.value_or(absl::ZeroDuration());
  outcome.computed =
      std::max(absl::ZeroDuration(), outcome.ended_at - outcome.begun_at - outcome.waited);
  absl::MutexLock lock(&mutex_);
  outcome_ = std::move(outcome);
}

absl::Status OverlappedRounds::RunSteps(const Window& window, Outcome& outcome,
                                        ExposedWait& exposed) {
  const int num_steps = window.grant.local_steps;
  const bool needs_nothing_before = job_.overlap_rounds || job::IsElastic(job_);
  const int merge_at = needs_nothing_before ? num_steps : std::min(job_.overlap_steps, num_steps);
  const auto is_abandoned = [this] {
    absl::MutexLock lock(&mutex_);
    return is_abandoned_;
  };
  bool is_merged = false;
  for (int step = 0; step < num_steps; ++step) {
    if (step == merge_at) {
      if (step > 0) RETURN_IF_ERROR(deps_.on_steps_made());
      RETURN_IF_ERROR(Merge(window, exposed));
      is_merged = true;
    }
    if (is_abandoned()) return AbandonedError();
    if (window.is_over())
      return absl::AbortedError("this worker's incarnation ended while it computed");
    if (steps_->window_end().IsDue(window.grant, step)) break;
    const absl::Status taken = steps_->Take(
        {.grant = &window.grant, .order = &window.order, .clip_norm = window.clip_norm}, step,
        &outcome.sums);
    if (steps_->IsLeft(window.grant, step, taken)) break;
    RETURN_IF_ERROR(taken);
  }
  RETURN_IF_ERROR(deps_.on_steps_made());
  if (!is_merged) RETURN_IF_ERROR(Merge(window, exposed));
  return steps_->Check(window.grant.round);
}

absl::Status OverlappedRounds::Merge(const Window& window, ExposedWait& exposed) {
  std::shared_ptr<WeightsPull> pull;
  {
    process::TraceSpan span(deps_.trace, "training", "exchange wait");
    exposed.Begin();
    SetWaiting(true);
    absl::StatusOr<std::shared_ptr<WeightsPull>> awaited = AwaitPull(window);
    SetWaiting(false);
    RETURN_IF_ERROR(awaited.status());
    pull = *std::move(awaited);
  }
  exposed.End();
  CountPull();
  Acknowledged acknowledged;
  {
    absl::MutexLock lock(&mutex_);
    pull_.reset();
    acknowledged = *std::exchange(acknowledged_, std::nullopt);
  }
  Learn(acknowledged);
  for (const uint32_t bucket : window.due) versions_.Set(bucket, pull->version(bucket));
  merge_->OnArrived(RangesOf(window.due));
  deps_.model->RefreshNarrowParameters();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<WeightsPull>> OverlappedRounds::AwaitPull(const Window& window) {
  while (true) {
    std::shared_ptr<WeightsPull> pull;
    {
      absl::MutexLock lock(&mutex_);
      const auto may_go_on = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return is_abandoned_ || (acknowledged_.has_value() && connection_.has_value());
      };
      mutex_.Await(absl::Condition(&may_go_on));
      if (is_abandoned_) return AbandonedError();
      if (pull_ == nullptr) pull_ = BeginPull(window.grant.round, window.due);
      pull = pull_;
    }
    const absl::Status status = pull->WaitForAll();
    if (status.ok()) return pull;
    absl::MutexLock lock(&mutex_);
    if (is_abandoned_) return AbandonedError();
    if (pull_ == pull) return status;
  }
}

std::shared_ptr<WeightsPull> OverlappedRounds::BeginPull(Round round,
                                                         const std::vector<uint32_t>& due) {
  const std::shared_ptr<const messages::Registration>& registration = connection_->registration;
  const auto registered = std::shared_ptr<RegisteredPull>(new RegisteredPull{
      registration, WeightsPull(*registration, round + 1, due, exchange_->weights(),
                                exchange_->ShadowFor(*registration), connection_->transport,
                                deps_.clock, deps_.trace)});
  return {registered, &registered->pull};
}

void OverlappedRounds::SetWaiting(bool waits) {
  absl::MutexLock lock(&mutex_);
  waits_for_servers_ = waits;
}

}  // namespace lodestar::trainer
