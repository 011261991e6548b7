// The part of BucketAggregator that runs on the executor: what becomes of whole contributions.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/gradient_clip.h"
#include "kernels/codec/encoded_vectors.h"
#include "server/shard/bucket_aggregator.h"
#include "server/shard/contribution_check.h"
#include "server/sync/asynchronous.h"

namespace lodestar {

BucketAggregator::Facts BucketAggregator::FactsOf(Round round) const {
  Facts facts;
  facts.facts.version = version_;
  facts.facts.round = round;
  facts.facts.newest_opened = context_->roster.newest_round();
  facts.plan = context_->roster.PlanOf(round);
  if (facts.plan != nullptr) facts.live = context_->roster.LiveOf(*facts.plan);
  facts.facts.plan = facts.plan.get();
  facts.facts.live = facts.live;
  return facts;
}

BucketAggregator::Facts BucketAggregator::FactsNow() const {
  Facts now = FactsOf(Round(version_.value()));
  now.facts.contributed = contributed_;
  return now;
}

BucketAggregator::Facts BucketAggregator::FactsForPush() const {
  if (phase_ == Phase::kCollecting) return FactsNow();
  // The round is decided: what still comes for it is late, what comes for the next one early.
  Facts next = FactsOf(Round(version_.value()) + 1);
  next.facts.is_updating = true;
  return next;
}

Decision BucketAggregator::JudgePush(const ContributionKey& key, const Facts& for_push) const {
  return context_->policy->OnPush(
      {
          .worker = key.worker,
          .incarnation = key.incarnation,
          .round = key.round,
          .base_version = key.base_version,
          .standing = context_->roster.StandingOf(key.worker, key.incarnation),
          .last_counted = counted_.Find(key.worker),
      },
      for_push.facts);
}

void BucketAggregator::Kick(DeferredCalls& calls) {
  if (is_scheduled_) return;
  is_scheduled_ = true;
  calls.Add(
      [self = shared_from_this()] { self->context_->executor->Schedule([self] { self->Run(); }); });
}

void BucketAggregator::Run() {
  while (true) {
    Work work;
    {
      DeferredCalls calls;
      absl::MutexLock lock(&mutex_);
      runner_ = std::this_thread::get_id();
      if (closed_.ok()) work = NextWork(calls);
      if (work.kind == Work::Kind::kNone && calls.empty()) {
        runner_ = {};
        is_scheduled_ = false;
        return;
      }
    }
    Do(std::move(work));
  }
}

BucketAggregator::Work BucketAggregator::NextWork(DeferredCalls& calls) {
  if (needs_review_) {
    needs_review_ = false;
    ReviewWaiting(calls);
  }
  if (!has_weights_ && !awaits_client_) return {};
  if (Work work = WorkOfPhase(calls); work.kind != Work::Kind::kNone) return work;
  if (Work work = WorkOfHeld(calls); work.kind != Work::Kind::kNone) return work;
  if (incoming_.empty()) return {};
  Work work = {.kind = Work::Kind::kCheck, .contribution = std::move(incoming_.front())};
  incoming_.pop_front();
  return work;
}

BucketAggregator::Work BucketAggregator::WorkOfPhase(DeferredCalls& calls) {
  if (!has_weights_) return {};
  if (phase_ == Phase::kCollecting && roster_changed_) {
    roster_changed_ = false;
    const Decision decision = context_->policy->OnRosterChange(FactsNow().facts);
    if (decision.action == Action::kDrop) {
      calls.Add(
          [context = context_, reason = decision.reason] { context->observer->OnNotice(reason); });
    }
    if (decision.action != Action::kHold) phase_ = Phase::kCommitting;
  }
  if (phase_ != Phase::kCommitting && phase_ != Phase::kNormKnown) return {};
  const std::shared_ptr<const RoundPlan> plan = context_->roster.PlanOf(Round(version_.value()));
  LODESTAR_CHECK(plan != nullptr) << "round " << version_ << " commits without a plan";
  Work work = {
      .kind = Work::Kind::kApply,
      .contribution = {},
      .has_update = arrived_samples_ > 0,
      .call = {.step = version_.value() + 1, .learning_rate = plan->learning_rate},
  };
  const int64_t planned = plan->total_weight();
  const bool is_first_pass = phase_ == Phase::kCommitting;
  if (is_first_pass && work.has_update && arrived_samples_ != planned) {
    work.rescale = static_cast<float>(static_cast<double>(planned) / arrived_samples_);
  }
  if (is_first_pass && context_->norm != nullptr) {
    phase_ = Phase::kAwaitingNorm;
    work.kind = Work::Kind::kSum;
    return work;
  }
  if (!is_first_pass) work.call.gradient_scale = clip_scale_;
  phase_ = Phase::kApplying;
  is_writing_ = true;
  return work;
}

BucketAggregator::Work BucketAggregator::WorkOfHeld(DeferredCalls& calls) {
  if (held_.empty()) return {};
  const Facts for_push = FactsForPush();
  for (auto held = held_.begin(); held != held_.end();) {
    const Decision decision = JudgePush(held->key, for_push);
    if (decision.action == Action::kHold) {
      ++held;
      continue;
    }
    Contribution contribution = std::move(*held);
    held = held_.erase(held);
    if (decision.counts()) return Count(std::move(contribution), decision, calls);
    absl::StatusOr<PushOutcome> answer =
        decision.duplicate ? PushOutcome::kDuplicate : PushOutcome::kLate;
    if (decision.action == Action::kReject) {
      answer = absl::Status(decision.code, decision.reason);
      context_->counters.CountRejected();
    } else {
      context_->counters.CountOutcome(*answer);
    }
    // The slot goes back with the closure, without the lock.
    calls.Add([ended = std::make_shared<Contribution>(std::move(contribution)),
               answer = std::move(answer)] { ended->done(answer); });
  }
  return {};
}

BucketAggregator::Work BucketAggregator::Count(Contribution contribution, const Decision& decision,
                                               DeferredCalls& calls) {
  const ContributionKey& key = contribution.key;
  counted_.Count(key.worker, {key.incarnation, key.round}, context_->roster.num_members(),
                 [this](WorkerId worker, Incarnation incarnation) {
                   return context_->roster.StandingOf(worker, incarnation) == Standing::kMember;
                 });
  context_->counters.CountOutcome(PushOutcome::kCounted);
  const int64_t staleness = std::max<int64_t>(version_ - key.base_version, 0);
  context_->counters.CountStaleness(staleness);
  calls.Add([done = std::move(contribution.done)] { done(PushOutcome::kCounted); });
  needs_review_ = true;
  if (contributed_.empty()) context_->counters.SetBucketPending(true);
  contributed_.insert(std::lower_bound(contributed_.begin(), contributed_.end(), key.worker),
                      key.worker);
  Work work = {.kind = Work::Kind::kAccumulate, .contribution = std::move(contribution)};
  if (decision.action == Action::kApplyAlone) {
    work.kind = Work::Kind::kApplyOne;
    work.has_update = true;
    work.call = {
        .step = version_.value() + 1,
        .learning_rate =
            context_->job.schedule.At(static_cast<double>(work.contribution.key.round.value())) *
            AsyncLearningRateFactor(context_->job.staleness_scaling, staleness),
        .gradient_scale = work.contribution.key.scale};
    is_writing_ = true;
    return work;
  }
  const std::shared_ptr<const RoundPlan> plan = context_->roster.PlanOf(Round(version_.value()));
  LODESTAR_CHECK(plan != nullptr) << "round " << version_ << " counts without a plan";
  const int64_t weight =
      plan->WeightOf(work.contribution.key.worker, work.contribution.key.num_samples);
  arrived_samples_ += weight;
  work.factor = static_cast<float>(static_cast<double>(weight) / plan->total_weight()) *
                work.contribution.key.scale;
  if (decision.action == Action::kApply) phase_ = Phase::kCommitting;
  return work;
}

void BucketAggregator::Do(Work work) {
  static constexpr absl::string_view kStages[] = {"",      "check", "accumulate",
                                                  "apply", "norm",  "apply"};  // by kind
  const bool is_of_contribution = work.contribution.slot != nullptr;
  TraceSpan span(
      work.kind == Work::Kind::kNone ? nullptr : context_->trace, "shard",
      kStages[static_cast<int>(work.kind)],
      {.round = is_of_contribution ? work.contribution.key.round.value() : work.call.step - 1,
       .bucket = bucket_.index});
  switch (work.kind) {
    case Work::Kind::kNone:
      return;
    case Work::Kind::kCheck:
      Check(std::move(work.contribution));
      return;
    case Work::Kind::kAccumulate:
      if (StagingSlot& slot = *work.contribution.slot;
          work.contribution.key.encoding == Encoding::kFp32 &&
          weights_.CanAdopt(slot.num_elements())) {
        weights_.Adopt(slot.TakePage(), work.factor);
      } else {
        weights_.Accumulate(work.contribution.key.encoding, slot.bytes(), work.factor);
      }
      return;
    case Work::Kind::kApplyOne:
      if (!weights_.Apply(work.call, work.contribution.key.encoding,
                          work.contribution.slot->bytes())) {
        return Diverge(work.contribution.key.round, "the numbers");
      }
      weights_.AdvanceShadow(Version(work.call.step));
      Publish();
      return;
    case Work::Kind::kSum:
      if (work.rescale != 1.0f) weights_.Rescale(work.rescale);
      SubmitNorm();
      return;
    case Work::Kind::kApply:
      if (work.rescale != 1.0f) weights_.Rescale(work.rescale);
      if (!weights_.ApplySum(work.call, work.has_update)) {
        return Diverge(Round(work.call.step - 1), "the numbers");
      }
      weights_.AdvanceShadow(Version(work.call.step));
      Publish();
      return;
  }
}

void BucketAggregator::Check(Contribution contribution) {
  const ContributionKey& key = contribution.key;
  if (absl::Status numbers = CheckNumbers(key, bucket_, contribution.slot->bytes());
      !numbers.ok()) {
    context_->counters.CountRejected();
    // First the coordinator, then the worker, which may ask it at once.
    const std::string text(numbers.message());
    if (key.kind == ContributionKind::kInitialWeights) {
      context_->observer->OnNotice(text);
    } else {
      context_->observer->OnFault({.worker = key.worker,
                                   .incarnation = key.incarnation,
                                   .round = key.round,
                                   .kind = WorkerFault::Kind::kNotFinite,
                                   .text = text});
    }
    contribution.done(numbers);
    return;
  }
  if (key.kind == ContributionKind::kInitialWeights) {
    TakeInitialWeights(std::move(contribution));
    return;
  }
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  if (!closed_.ok()) {
    calls.Add([ended = std::make_shared<Contribution>(std::move(contribution)), status = closed_] {
      ended->done(status);
    });
    return;
  }
  const auto position = std::find_if(held_.begin(), held_.end(), [&](const Contribution& other) {
    return std::pair(contribution.key.round, contribution.key.worker) <
           std::pair(other.key.round, other.key.worker);
  });
  held_.insert(position, std::move(contribution));
}

void BucketAggregator::TakeInitialWeights(Contribution contribution) {
  const std::pair<WorkerId, Incarnation> supplier(contribution.key.worker,
                                                  contribution.key.incarnation);
  bool is_duplicate = false;
  absl::Status refusal;
  {
    absl::MutexLock lock(&mutex_);
    refusal = CheckKey(contribution.key);
    is_duplicate = supplier_ == supplier;
    is_writing_ = refusal.ok() && !is_duplicate;
  }
  if (!refusal.ok() || is_duplicate) {
    contribution.done(refusal.ok() ? absl::StatusOr<PushOutcome>(PushOutcome::kDuplicate)
                                   : refusal);
    return;
  }
  const absl::StatusOr<absl::Span<float>> space = weights_.InitialWeights();
  if (space.ok()) {
    AccumulateDecoded(contribution.key.encoding, contribution.slot->bytes(), bucket_.range.size(),
                      contribution.key.scale, space->data(), Accumulate::kSet);
  }
  {
    DeferredCalls calls;
    absl::MutexLock lock(&mutex_);
    is_writing_ = false;
    if (space.ok()) supplier_ = supplier;
    if (space.ok()) BecomeReady(calls);
  }
  if (!space.ok()) return contribution.done(space.status());
  contribution.done(PushOutcome::kCounted);
}

void BucketAggregator::SubmitNorm() {
  Round round;
  {
    absl::MutexLock lock(&mutex_);
    round = Round(version_.value());
  }
  context_->norm->Submit(round, position_, weights_.SegmentSquareSums(),
                         [self = shared_from_this()](absl::StatusOr<double> total) {
                           self->OnNorm(std::move(total));
                         });
}

void BucketAggregator::OnNorm(absl::StatusOr<double> total_square_sum) {
  if (total_square_sum.ok() && !std::isfinite(*total_square_sum)) {
    return Diverge(Round(version().value()), "the gradient's norm, and so the update");
  }
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  if (!total_square_sum.ok()) {
    norm_error_ = std::string(total_square_sum.status().message());
    return;
  }
  clip_scale_ = GradientClipScale(*total_square_sum, context_->job.clip_norm);
  phase_ = Phase::kNormKnown;
  Kick(calls);
}

void BucketAggregator::Publish() {
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  const Version before = version_;
  ++version_;
  is_writing_ = false;
  phase_ = Phase::kCollecting;
  if (!contributed_.empty()) context_->counters.SetBucketPending(false);
  contributed_.clear();
  arrived_samples_ = 0;
  counted_.MarkPublished();
  needs_review_ = true;
  roster_changed_ = true;
  if (const auto lowest = context_->counters.MoveBucket(before, version_); lowest.has_value()) {
    calls.Add([context = context_, version = *lowest] {
      context->observer->OnVersion(version);
      if (context->trace != nullptr) context->trace->BeginRound(version.value());
    });
  }
}

std::string BucketAggregator::WaitingFor() const {
  absl::MutexLock lock(&mutex_);
  if (!closed_.ok()) return std::string(closed_.message());
  if (!has_weights_) {
    return awaits_client_ ? "waits for the first client to supply weights" : "loads weights";
  }
  if (phase_ == Phase::kAwaitingNorm) {
    return norm_error_.empty()
               ? absl::StrCat("round ", version_.value(),
                              " waits for the gradient's norm: for the last bucket of every shard")
               : absl::StrCat("round ", version_.value(), " has no norm: ", norm_error_);
  }
  if (phase_ != Phase::kCollecting) return "";
  return context_->policy->OnRosterChange(FactsNow().facts).reason;
}

}  // namespace lodestar
