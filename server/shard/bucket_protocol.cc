// SPDX-License-Identifier: Apache-2.0

#include "server/shard/bucket_protocol.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/job/gradient_clip.h"
#include "common/runtime/check.h"
#include "server/sync/asynchronous.h"

namespace lodestar::shard {
namespace {

using Effect = BucketEffect::Kind;
using Step = BucketStep::Kind;

// Rates that differ by less, relatively, are the same: libraries of mathematics round differently.
constexpr double kSameRate = 1e-6;

absl::Status StatusOf(const sync::Decision& refusal) {
  return absl::Status(refusal.code, refusal.reason);
}

PushOutcome OutcomeOf(const sync::Decision& drop) {
  return drop.duplicate ? PushOutcome::kDuplicate : PushOutcome::kLate;
}

}  // namespace

void BucketProtocol::OnWeights(Round round, Version version,
                               const std::vector<CountedWorker>& counted,
                               const UsualNorm& usual_norm, const DelayedStep::Memory& delayed) {
  round_ = round;
  version_ = version;
  counted_.Restore(counted);
  watch_.Restore(usual_norm);
  delayed_ = DelayedStep(delayed);
  now_ = FactsOf(round_);
  has_weights_ = true;
  needs_review_ = true;
  roster_changed_ = true;
}

void BucketProtocol::OnRoster(std::shared_ptr<const RosterView> roster) {
  roster_ = std::move(roster);
  now_ = FactsOf(round_);
  if (phase_ != Phase::kCollecting) next_ = FactsOf(round_ + 1);
  needs_review_ = true;
  roster_changed_ = true;
}

void BucketProtocol::Close(const absl::Status& status) {
  if (!closed_.ok()) return;
  closed_ = status;
  is_writing_ = false;
  Review();
  for (const Held& held : held_) {
    effects_.push_back({.kind = Effect::kRefuse, .call = held.call, .status = status});
  }
  held_.clear();
  if (replacement_.has_value()) {
    effects_.push_back({.kind = Effect::kRefuseReplacement, .status = status});
    replacement_.reset();
  }
}

BucketProtocol::RoundFacts BucketProtocol::FactsOf(Round round) const {
  RoundFacts facts = {.plan = roster_->PlanOf(round), .live = {}};
  if (facts.plan != nullptr) facts.live = roster_->LiveOf(*facts.plan);
  return facts;
}

sync::BucketFacts BucketProtocol::Facts() const {
  return {.version = version_,
          .round = round_,
          .newest_opened = roster_->newest_round(),
          .over_before = roster_->over_before(),
          .is_due = config_.turn.IsDue(round_),
          .plan = now_.plan.get(),
          .live = now_.live,
          .contributed = contributed_};
}

sync::BucketFacts BucketProtocol::FactsForPush() const {
  if (phase_ == Phase::kCollecting) return Facts();
  return {.version = version_,
          .round = round_ + 1,
          .is_updating = true,
          .newest_opened = roster_->newest_round(),
          .over_before = roster_->over_before(),
          .is_due = config_.turn.IsDue(round_ + 1),
          .plan = next_.plan.get(),
          .live = next_.live,
          .contributed = {}};
}

sync::Decision BucketProtocol::Judge(const ContributionKey& key,
                                     const sync::BucketFacts& facts) const {
  return config_.policy->OnPush({.worker = key.worker,
                                 .incarnation = key.incarnation,
                                 .round = key.round,
                                 .base_version = key.base_version,
                                 .standing = roster_->StandingOf(key.worker, key.incarnation),
                                 .last_counted = counted_.Find(key.worker),
                                 .is_due = config_.turn.IsDue(key.round),
                                 .num_samples = key.num_samples},
                                facts);
}

absl::Status BucketProtocol::CheckOpen(const ContributionKey& key) const {
  if (!closed_.ok()) return closed_;
  if (key.kind == messages::ContributionKind::kInitialWeights) {
    // If the supplier's incarnation is over, another worker supplies the weights. This worker is
    // refused, because the buckets would otherwise be a mix of both workers' weights.
    if (roster_->StandingOf(key.worker, key.incarnation) == sync::Standing::kGone) {
      return roster_->RefusalFor(
          key.worker, key.incarnation,
          absl::FailedPreconditionError(
              "this worker's incarnation is over, so another worker supplies the initial weights"));
    }
    if (!roster_->has_members()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "training has begun, so initial weights cannot be sent any more");
  }
  if (has_weights_) return absl::OkStatus();
  return absl::UnavailableError(awaits_client_
                                    ? "the server waits for the first program to supply weights"
                                    : "the server has not loaded its weights yet");
}

bool BucketProtocol::IsUnannounced(WorkerId worker, Incarnation incarnation) const {
  return worker != WorkerId() &&
         roster_->StandingOf(worker, incarnation) == sync::Standing::kUnknown;
}

absl::Status BucketProtocol::CheckRoomFor(WorkerId worker, Incarnation incarnation) const {
  if (!IsUnannounced(worker, incarnation)) return absl::OkStatus();
  int all = 0;
  int of_worker = 0;
  const auto count = [&](WorkerId other, Incarnation life) {
    if (!IsUnannounced(other, life)) return;
    ++all;
    if (other == worker) ++of_worker;
  };
  for (const Push& push : pushes_) {
    if (push.key.kind != messages::ContributionKind::kInitialWeights) {
      count(push.key.worker, push.key.incarnation);
    }
  }
  for (const Read& read : reads_) count(read.worker, read.incarnation);
  if (all < kMaxUnannounced && of_worker < kMaxUnannouncedOfWorker) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "bucket ", config_.bucket, " holds ", all,
      " calls of workers that the coordinator has not announced to this ", "shard yet, ", of_worker,
      " of them of worker ", worker.value(), ". Allowed are ", kMaxUnannounced, ", and ",
      kMaxUnannouncedOfWorker, " per worker; send the call again"));
}

void BucketProtocol::OnPush(CallId call, const ContributionKey& key) {
  Push push = {.call = call, .key = key};
  if (AnswerPush(push, FactsForPush())) return;
  absl::Status room = key.kind == messages::ContributionKind::kInitialWeights
                          ? absl::OkStatus()
                          : CheckRoomFor(key.worker, key.incarnation);
  if (room.ok()) return pushes_.push_back(push);
  effects_.push_back({.kind = Effect::kRefusePush, .call = call, .status = std::move(room)});
}

bool BucketProtocol::AnswerPush(Push& push, const sync::BucketFacts& facts) {
  if (absl::Status status = CheckOpen(push.key); !status.ok()) {
    effects_.push_back(
        {.kind = Effect::kRefusePush, .call = push.call, .status = std::move(status)});
    return true;
  }
  const sync::Decision decision = push.key.kind == messages::ContributionKind::kInitialWeights
                                      ? sync::Decision::Apply()
                                      : Judge(push.key, facts);
  if (decision.action == sync::Action::kReject) {
    effects_.push_back(
        {.kind = Effect::kRefusePush, .call = push.call, .status = StatusOf(decision)});
    return true;
  }
  if (decision.action == sync::Action::kDrop) {
    effects_.push_back(
        {.kind = Effect::kDiscardPush, .call = push.call, .outcome = OutcomeOf(decision)});
    return true;
  }
  if (decision.counts() || (decision.is_due && !push.has_request)) {
    push.has_request = true;
    effects_.push_back(
        {.kind = Effect::kRequestSlot, .call = push.call, .in_turn = decision.counts()});
  }
  return false;
}

void BucketProtocol::OnSlot(CallId call) { ForgetPush(call); }

void BucketProtocol::ForgetPush(CallId call) {
  std::erase_if(pushes_, [call](const Push& push) { return push.call == call; });
}

void BucketProtocol::ForgetRead(CallId call) {
  std::erase_if(reads_, [call](const Read& read) { return read.call == call; });
}

void BucketProtocol::OnArrived(CallId contribution, const ContributionKey& key,
                               std::optional<double> norm) {
  const auto position = std::find_if(held_.begin(), held_.end(), [&](const Held& other) {
    return std::pair(key.round, key.worker) < std::pair(other.key.round, other.key.worker);
  });
  held_.insert(position, {.call = contribution, .key = key, .norm = norm});
  if (!closed_.ok()) {
    held_.clear();
    effects_.push_back({.kind = Effect::kRefuse, .call = contribution, .status = closed_});
  }
}

void BucketProtocol::OnRead(CallId call, WorkerId worker, Incarnation incarnation,
                            Round min_round) {
  const Read read = {call, worker, incarnation, min_round};
  if (AnswerRead(read)) return;
  absl::Status room = CheckRoomFor(worker, incarnation);
  if (room.ok()) return reads_.push_back(read);
  effects_.push_back({.kind = Effect::kRefuseRead, .call = call, .status = std::move(room)});
}

bool BucketProtocol::AnswerRead(const Read& read) {
  absl::Status refusal = closed_;
  if (refusal.ok() && !has_weights_) {
    refusal = awaits_client_
                  ? absl::NotFoundError(
                        "the program that gives the model has not supplied its weights yet")
                  : absl::UnavailableError("the server has not loaded its weights yet");
  }
  if (refusal.ok()) {
    const sync::Standing standing = read.worker == WorkerId()
                                        ? sync::Standing::kMember
                                        : roster_->StandingOf(read.worker, read.incarnation);
    const sync::Decision decision =
        config_.policy->OnPull({read.worker, read.incarnation, read.min_round, standing}, Facts());
    if (decision.action == sync::Action::kHold ||
        (decision.action == sync::Action::kApply && is_writing_)) {
      return false;
    }
    if (decision.action == sync::Action::kReject) refusal = StatusOf(decision);
  }
  effects_.push_back({.kind = refusal.ok() ? Effect::kRead : Effect::kRefuseRead,
                      .call = read.call,
                      .status = std::move(refusal)});
  return true;
}

void BucketProtocol::OnCapture(CallId call, std::optional<Round> round) {
  const Capture capture = {call, round};
  if (!AnswerCapture(capture)) captures_.push_back(capture);
}

void BucketProtocol::OnReplacement(Round round) {
  if (!closed_.ok()) {
    effects_.push_back({.kind = Effect::kRefuseReplacement, .status = closed_});
    return;
  }
  replacement_ = round;
}

BucketStep BucketProtocol::StepOfReplacement() {
  if (!replacement_.has_value() || phase_ != Phase::kCollecting || round_ < *replacement_) {
    return {};
  }
  if (round_ == *replacement_ && contributed_.empty()) {
    is_writing_ = true;
    // Once the owner has this step, the owner must answer the replacement, even if the bucket is
    // closed meanwhile. So Close() must not answer it.
    replacement_.reset();
    return {.kind = Step::kReplace, .round = round_};
  }
  effects_.push_back({.kind = Effect::kRefuseReplacement,
                      .status = absl::FailedPreconditionError(absl::StrCat(
                          "bucket ", config_.bucket, " collects round ", round_.value(),
                          ", but the new weights were meant for the beginning of round ",
                          replacement_->value()))});
  replacement_.reset();
  return {};
}

void BucketProtocol::OnReplaced() {
  is_writing_ = false;
  needs_review_ = true;
}

bool BucketProtocol::AnswerCapture(const Capture& capture) {
  absl::Status refusal = closed_;
  if (refusal.ok() && !has_weights_) {
    refusal = absl::FailedPreconditionError(
        "there are no weights to save yet; try again when the job has begun");
  }
  if (refusal.ok() && capture.round.has_value() && *capture.round < round_) {
    refusal = absl::FailedPreconditionError(
        absl::StrCat("bucket ", config_.bucket, " collects round ", round_.value(),
                     ", so the state before round ", capture.round->value(), " is gone"));
  }
  if (refusal.ok() && (is_writing_ || (capture.round.has_value() && *capture.round > round_))) {
    return false;
  }
  effects_.push_back({.kind = refusal.ok() ? Effect::kCapture : Effect::kRefuseCapture,
                      .call = capture.call,
                      .status = std::move(refusal)});
  return true;
}

void BucketProtocol::Review() {
  needs_review_ = false;
  // The facts are the same for all waiting pushes, so they are computed once. There may be many
  // pushes, and this method runs each time a contribution counts.
  if (!pushes_.empty()) {
    const sync::BucketFacts facts = FactsForPush();
    std::erase_if(pushes_, [&](Push& push) { return AnswerPush(push, facts); });
  }
  std::erase_if(reads_, [this](const Read& read) { return AnswerRead(read); });
  std::erase_if(captures_, [this](const Capture& capture) { return AnswerCapture(capture); });
}

void BucketProtocol::OnTick() {
  if (!closed_.ok()) return;
  // Counts a tick for a call whose incarnation is unannounced. Returns true if the call is refused.
  const auto refuse = [this](WorkerId worker, Incarnation incarnation, auto& waiting, Effect kind) {
    waiting.ticks = IsUnannounced(worker, incarnation) ? waiting.ticks + 1 : 0;
    if (waiting.ticks <= kMaxTicks) return false;
    effects_.push_back({.kind = kind,
                        .call = waiting.call,
                        .status = absl::UnavailableError(absl::StrCat(
                            "incarnation ", incarnation.value(), " of worker ", worker.value(),
                            " has not been announced to this shard; send the call again"))});
    return true;
  };
  const auto refuse_contribution = [&refuse](Effect kind) {
    return [&refuse, kind](auto& waiting) {
      return waiting.key.kind != messages::ContributionKind::kInitialWeights &&
             refuse(waiting.key.worker, waiting.key.incarnation, waiting, kind);
    };
  };
  std::erase_if(pushes_, refuse_contribution(Effect::kRefusePush));
  std::erase_if(held_, refuse_contribution(Effect::kRefuse));
  std::erase_if(reads_, [&refuse](Read& read) {
    return refuse(read.worker, read.incarnation, read, Effect::kRefuseRead);
  });
  if (!norm_error_.empty()) phase_ = Phase::kCommitting;
}

BucketStep BucketProtocol::NextStep() {
  if (!closed_.ok()) return {};
  if (needs_review_) Review();
  if (!has_weights_ && !awaits_client_) return {};
  if (BucketStep step = StepOfPhase(); step.kind != Step::kNone) return step;
  return StepOfHeld();
}

BucketStep BucketProtocol::StepOfPhase() {
  if (!has_weights_) return {};
  if (phase_ == Phase::kCollecting && roster_changed_) {
    roster_changed_ = false;
    const sync::Decision decision = config_.policy->OnRosterChange(Facts());
    if (decision.action == sync::Action::kDrop && !decision.reason.empty()) {
      effects_.push_back({.kind = Effect::kNotice, .status = absl::AbortedError(decision.reason)});
    }
    if (decision.action != sync::Action::kHold) EndCollecting();
  }
  if (BucketStep step = StepOfReplacement(); step.kind != Step::kNone) return step;
  // A round with nothing to update needs no plan, and may never get one.
  if (phase_ == Phase::kResummed && (now_.plan != nullptr || arrived_weight_ == 0)) EndCollecting();
  if (phase_ != Phase::kCommitting && phase_ != Phase::kNormKnown) return {};
  BucketStep step = {
      .kind = Step::kApply,
      .round = round_,
      .has_update = arrived_weight_ > 0,
  };
  if (step.has_update) {
    LODESTAR_CHECK(now_.plan != nullptr) << "round " << round_ << " updates without a plan";
    step.call = {.step = version_.value() + 1, .learning_rate = LearningRate()};
    const int64_t planned = PlannedWeight();
    if (!is_rescaled_ && !config_.divides_by_senders && arrived_weight_ != planned) {
      step.rescale = static_cast<float>(static_cast<double>(planned) / arrived_weight_);
    }
    if (!is_rescaled_ && !IsAlone()) {
      const float scale = watch_.ScaleOfSum();
      const bool is_of_weights =
          messages::RoundContributionKind(*config_.job) == messages::ContributionKind::kWeights;
      (is_of_weights ? step.clip : step.rescale) *= scale;
    }
  }
  is_rescaled_ = true;
  if (phase_ == Phase::kCommitting && config_.awaits_norm) {
    phase_ = Phase::kAwaitingNorm;
    norm_error_.clear();
    step.kind = Step::kSum;
    return step;
  }
  if (phase_ == Phase::kNormKnown) step.call.gradient_scale = clip_scale_;
  phase_ = Phase::kUpdating;
  is_writing_ = true;
  return step;
}

BucketStep BucketProtocol::StepOfHeld() {
  if (held_.empty()) return {};
  const sync::BucketFacts facts = FactsForPush();
  for (auto it = held_.begin(); it != held_.end();) {
    const Held held = *it;
    if (held.key.kind == messages::ContributionKind::kInitialWeights) {
      it = held_.erase(it);
      if (BucketStep step = TakeWeights(held); step.kind != Step::kNone) return step;
      continue;
    }
    const sync::Decision decision = Judge(held.key, facts);
    if (decision.action == sync::Action::kHold) {
      ++it;
      continue;
    }
    it = held_.erase(it);
    if (decision.counts()) {
      absl::Status fits = CheckRate(held.key);
      if (fits.ok()) fits = CheckWeight(held.key);
      if (fits.ok()) return Count(held, decision);
      Answer(held.call, fits);
      continue;
    }
    Answer(held.call, decision.action == sync::Action::kReject
                          ? absl::StatusOr<PushOutcome>(StatusOf(decision))
                          : OutcomeOf(decision));
  }
  return {};
}

void BucketProtocol::Answer(CallId contribution, const absl::StatusOr<PushOutcome>& answer) {
  BucketEffect effect = {.kind = answer.ok() ? Effect::kAcknowledge : Effect::kRefuse,
                         .call = contribution};
  if (answer.ok()) {
    effect.outcome = *answer;
  } else {
    effect.status = answer.status();
  }
  effects_.push_back(std::move(effect));
}

BucketStep BucketProtocol::TakeWeights(const Held& held) {
  const std::pair<WorkerId, Incarnation> supplier(held.key.worker, held.key.incarnation);
  if (absl::Status status = CheckOpen(held.key); !status.ok()) {
    Answer(held.call, status);
    return {};
  }
  if (std::exchange(supplier_, supplier) != supplier) supplied_.clear();
  if (!supplied_.insert(held.key.state_vector).second) {
    Answer(held.call, PushOutcome::kDuplicate);
    return {};
  }
  is_writing_ = true;
  return {.kind = Step::kTakeWeights, .contribution = held.call, .round = held.key.round};
}

void BucketProtocol::OnTaken(CallId contribution, const ContributionKey& key,
                             const absl::Status& status) {
  is_writing_ = false;
  if (!status.ok()) {
    supplier_.reset();
    Answer(contribution, status);
    return;
  }
  if (key.state_vector == 0) OnWeights(round_, key.base_version, {});
  Answer(contribution, PushOutcome::kCounted);
}

BucketStep BucketProtocol::Count(const Held& held, const sync::Decision& decision) {
  const ContributionKey& key = held.key;
  counted_.Count(key.worker, {key.incarnation, key.round}, roster_->num_members(),
                 [this](WorkerId worker, Incarnation incarnation) {
                   return roster_->StandingOf(worker, incarnation) == sync::Standing::kMember;
                 });
  const int64_t staleness = std::max<int64_t>(version_ - key.base_version, 0);
  effects_.push_back({.kind = Effect::kAcknowledge, .call = held.call, .staleness = staleness});
  needs_review_ = true;
  if (key.is_skipped()) return Skip(held, decision);
  BucketStep step = {.kind = Step::kAccumulate, .contribution = held.call, .round = key.round};
  if (held.norm.has_value()) {
    step.norm = held.norm;
    if (!IsAlone()) step.clip = watch_.ScaleOf(*held.norm);
    watch_.Count(key.worker, key.incarnation, key.round, *held.norm);
  }
  if (decision.action == sync::Action::kApplyAlone) {
    ApplyAlone(key, staleness, step);
    return step;
  }
  LODESTAR_CHECK(now_.plan != nullptr) << "round " << round_ << " counts without a plan";
  step.weight = key.weight.value_or(now_.plan->WeightOf(key.worker, key.num_samples));
  AddContributor(key.worker, step.weight);
  RememberProgram(key);
  step.factor = static_cast<float>(static_cast<double>(step.weight) / PlannedWeight());
  // If contributions are weights, the scale and the clip apply to their difference from the
  // bucket's weights, and not to the weights. So `factor` does not include them.
  if (key.kind != messages::ContributionKind::kWeights) step.factor *= key.scale * step.clip;
  if (decision.action == sync::Action::kApply) EndCollecting();
  return step;
}

absl::Status BucketProtocol::CheckRate(const ContributionKey& key) const {
  if (!program_rate_.has_value() || !key.learning_rate.has_value() || key.is_skipped() ||
      std::abs(*key.learning_rate - *program_rate_) <= kSameRate * *program_rate_) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "worker %d has the learning rate %.9g for round %d, and the workers before it have %.9g. Use "
      "one schedule in all programs, by the job's rounds (attach(..., schedulers=[...]) or "
      "ps.round). Or give ps_server --learning_rate and --lr_schedule",
      key.worker.value(), *key.learning_rate, key.round.value(), *program_rate_));
}

absl::Status BucketProtocol::CheckWeight(const ContributionKey& key) const {
  const bool has_weight = key.weight.has_value();
  if (key.is_skipped() || first_weight_.value_or(key.weight).has_value() == has_weight) {
    return absl::OkStatus();
  }
  const std::string given =
      has_weight ? absl::StrCat("the weight ", *key.weight) : "no weight of its own";
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", key.worker.value(), " gives ", given, " in round ", key.round.value(),
                   ", and the workers before it give ", has_weight ? "none" : "one",
                   "; let all programs call ps.log(loss, weight=) in each step, or none"));
}

void BucketProtocol::RememberProgram(const ContributionKey& key) {
  if (!program_rate_.has_value()) program_rate_ = key.learning_rate;
  if (!first_weight_.has_value()) first_weight_.emplace(key.weight);
}

int64_t BucketProtocol::PlannedWeight() const {
  const std::optional<int64_t> first = first_weight_.value_or(std::nullopt);
  if (!first.has_value()) return now_.plan->total_weight();
  return std::max<int64_t>(*first, 1) * static_cast<int64_t>(now_.plan->roster.size());
}

double BucketProtocol::LearningRate() const {
  const double of_job = now_.plan->learning_rate;
  if (!program_rate_.has_value()) return of_job;
  return *program_rate_ * (of_job / config_.job->schedule.peak);
}

void BucketProtocol::ApplyAlone(const ContributionKey& key, int64_t staleness, BucketStep& step) {
  const job::JobSpec& job = *config_.job;
  step.kind = Step::kApplyAlone;
  step.has_update = true;
  step.call = {.step = version_.value() + 1,
               .learning_rate = job.schedule.At(static_cast<double>(key.round.value())) *
                                sync::AsyncLearningRateFactor(job.staleness_scaling, staleness),
               .gradient_scale = key.scale * step.clip};
  if (const std::optional<int> parts = config_.policy->PartsOfStep(roster_->num_members());
      parts.has_value()) {
    const int64_t usual = job::StepSamples(job) * job.local_steps;
    const int64_t weight = key.num_samples == 0 ? usual : std::min(key.num_samples, usual);
    step.call.part = delayed_.Add(weight, usual, *parts);
    step.call.gradient_scale *= step.call.part.factor;
    step.delayed = delayed_.memory();
  }
  is_writing_ = true;
  AddContributor(key.worker, 0);
}

BucketStep BucketProtocol::Skip(const Held& held, const sync::Decision& decision) {
  if (decision.action == sync::Action::kApplyAlone) {
    // A skipped contribution changes no weights, so the published version counts it at once.
    counted_.MarkPublished();
  } else {
    AddContributor(held.key.worker, 0);
    if (decision.action == sync::Action::kApply) EndCollecting();
  }
  return {.kind = Step::kSkip, .contribution = held.call, .round = held.key.round};
}

void BucketProtocol::EndCollecting() {
  phase_ = Phase::kCommitting;
  next_ = FactsOf(round_ + 1);
}

void BucketProtocol::AddContributor(WorkerId worker, int64_t weight) {
  contributed_.insert(std::lower_bound(contributed_.begin(), contributed_.end(), worker), worker);
  arrived_weight_ += weight;
}

bool BucketProtocol::IsAlone() const {
  return now_.plan != nullptr ? now_.plan->roster.size() == 1 : roster_->num_members() <= 1;
}

void BucketProtocol::EndWatchedRound() {
  const std::vector<NormWatch::Finding> findings = watch_.EndRound();
  if (IsAlone()) return;
  for (const NormWatch::Finding& finding : findings) {
    BucketEffect effect = {.kind = Effect::kFault};
    effect.fault = {
        .worker = finding.worker,
        .incarnation = finding.incarnation,
        .round = finding.round,
        .kind = sync::WorkerFault::Kind::kTooLong,
        .text = absl::StrFormat(
            "worker %d, bucket %d: the norm is %.3g and usually %.3g; a norm of more than %g times "
            "the usual one (--norm_limit) is scaled down to the usual one",
            finding.worker.value(), config_.bucket, finding.norm, finding.usual,
            config_.job->norm_limit)};
    effects_.push_back(std::move(effect));
  }
}

bool BucketProtocol::HasReplayed(const BucketStep& step, const ContributionKey& key) const {
  switch (step.kind) {
    case Step::kSkip: {
      if (config_.policy->uses_rosters() && step.round < round_) return true;
      // If contributions are applied one by one, versions do not say which contributions are
      // included. Only the table of counted contributions does.
      const std::optional<sync::CountedContribution> last = counted_.Find(key.worker);
      return last.has_value() &&
             std::pair(last->incarnation, last->round) >= std::pair(key.incarnation, key.round);
    }
    case Step::kTakeWeights:
      // If weights were loaded, they already include this step. If an earlier client supplied the
      // weights, they do not: the step replaced them by the weights of a later client.
      return has_weights_ && !supplier_.has_value();
    case Step::kApplyAlone:
      return step.call.step <= version_.value();
    default:
      return step.round < round_;
  }
}

absl::StatusOr<bool> BucketProtocol::Replay(const BucketStep& step, const ContributionKey& key) {
  if (HasReplayed(step, key)) return false;
  const bool is_alone = !config_.policy->uses_rosters();
  bool follows = has_weights_ && (step.round == round_ || (step.kind == Step::kSkip && is_alone));
  if (step.kind == Step::kTakeWeights) follows = awaits_client_;
  if (step.kind == Step::kApplyAlone) {
    follows = has_weights_ && step.call.step == version_.value() + 1;
  }
  if (step.kind == Step::kSum || step.kind == Step::kApply) {
    follows = follows && step.has_update == (arrived_weight_ > 0);
  }
  if (!follows) {
    return absl::DataLossError(
        absl::StrCat("bucket ", config_.bucket, ", in round ", round_.value(), " at version ",
                     version_.value(), ", is followed in the journal by a record of round ",
                     step.round.value(), ", so records between them are missing"));
  }
  if (step.kind == Step::kAccumulate || step.kind == Step::kApplyAlone ||
      step.kind == Step::kSkip) {
    // The members are not known during a replay, so no row of the table may be dropped.
    counted_.Count(key.worker, {key.incarnation, key.round}, std::numeric_limits<int>::max() / 2,
                   [](WorkerId, Incarnation) { return true; });
    if (step.kind == Step::kSkip && is_alone) {
      counted_.MarkPublished();
    } else {
      AddContributor(key.worker, step.weight);
    }
    if (step.kind == Step::kAccumulate) RememberProgram(key);
    if (step.norm.has_value()) watch_.Count(key.worker, key.incarnation, key.round, *step.norm);
  }
  switch (step.kind) {
    case Step::kNone:
    case Step::kAccumulate:
    case Step::kSkip:
    case Step::kReplace:
      break;
    case Step::kTakeWeights:
      supplier_.emplace(key.worker, key.incarnation);
      supplied_.insert(key.state_vector);
      if (key.state_vector == 0) OnWeights(round_, key.base_version, {});
      break;
    case Step::kSum:
      phase_ = Phase::kResummed;
      is_rescaled_ = true;
      break;
    case Step::kApplyAlone:
      if (step.delayed.has_value()) delayed_ = DelayedStep(*step.delayed);
      OnUpdated();
      break;
    case Step::kApply:
      phase_ = Phase::kUpdating;
      OnUpdated();
      now_ = FactsOf(round_);
      break;
  }
  // Faults were reported before the process ended, so they are not reported again.
  std::erase_if(effects_, [](const BucketEffect& effect) { return effect.kind == Effect::kFault; });
  return true;
}

void BucketProtocol::OnNorm(Round round, const absl::StatusOr<double>& total_square_sum) {
  if (phase_ != Phase::kAwaitingNorm || round != round_) return;
  if (!total_square_sum.ok()) {
    norm_error_ = absl::StrCat("waits, because the gradient's norm could not be computed: ",
                               total_square_sum.status().message());
    return;
  }
  clip_scale_ = job::GradientClipScale(*total_square_sum, config_.job->clip_norm);
  phase_ = Phase::kNormKnown;
}

void BucketProtocol::OnUpdated() {
  is_writing_ = false;
  // If all contributions to a round have weight 0, there is no update and no new version.
  if (phase_ != Phase::kUpdating || arrived_weight_ > 0) ++version_;
  if (phase_ == Phase::kUpdating || watch_.num_counted() >= kWatchedTogether) {
    EndWatchedRound();
  }
  if (phase_ == Phase::kUpdating) {
    ++round_;
    now_ = std::move(next_);
    phase_ = Phase::kCollecting;
  }
  contributed_.clear();
  arrived_weight_ = 0;
  program_rate_.reset();
  first_weight_.reset();
  is_rescaled_ = false;
  counted_.MarkPublished();
  needs_review_ = true;
  roster_changed_ = true;
}

std::vector<WorkerId> BucketProtocol::Missing() const {
  std::vector<WorkerId> missing;
  if (phase_ != Phase::kCollecting) return missing;
  std::set_difference(now_.live.begin(), now_.live.end(), contributed_.begin(), contributed_.end(),
                      std::back_inserter(missing));
  return missing;
}

bool BucketProtocol::IsSettled(Round round, WorkerId worker) const {
  // A bucket that takes no part in this round may still be in an earlier round.
  if (!closed_.ok() || round_ > round || !config_.turn.IsDue(round)) return true;
  // If the bucket has not reached `round`, it has acknowledged no contribution to that round,
  // because it acknowledges only what it has counted.
  if (round_ < round) return false;
  return phase_ != Phase::kCollecting ||
         std::binary_search(contributed_.begin(), contributed_.end(), worker);
}

std::string BucketProtocol::WaitingFor() const {
  if (!closed_.ok()) return std::string(closed_.message());
  if (!has_weights_) {
    return awaits_client_ ? "waits for the first program to supply weights" : "loads weights";
  }
  if (phase_ == Phase::kAwaitingNorm) {
    return absl::StrCat(
        "round ", round_.value(), " ",
        norm_error_.empty()
            ? "waits for the last bucket of every shard to compute the gradient's norm"
            : norm_error_);
  }
  if (phase_ != Phase::kCollecting) return "";
  return config_.policy->OnRosterChange(Facts()).reason;
}

}  // namespace lodestar::shard
