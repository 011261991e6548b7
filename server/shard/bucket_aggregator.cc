#include "server/shard/bucket_aggregator.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/contribution.h"
#include "common/status_macros.h"
#include "kernels/reduce.h"
#include "server/shard/contribution_check.h"

namespace lodestar {
namespace {

absl::Status StatusOf(const Decision& decision) {
  return absl::Status(decision.code, decision.reason);
}

PushOutcome OutcomeOf(const Decision& drop) {
  return drop.duplicate ? PushOutcome::kDuplicate : PushOutcome::kLate;
}

}  // namespace

BucketAggregator::BucketAggregator(std::shared_ptr<ShardContext> context, const Bucket& bucket,
                                   int position)
    : context_(std::move(context)),
      bucket_(bucket),
      position_(position),
      weights_(bucket.range, context_->job, context_->layout, *context_->optimizer,
               *context_->pages) {}

absl::Status BucketAggregator::Load(const Filler& fill) {
  ASSIGN_OR_RETURN(const absl::Span<float> weights, weights_.InitialWeights());
  RETURN_IF_ERROR(fill(bucket_.range, weights));
  if (!AllFinite(weights.data(), bucket_.range.size())) return NotFinite("the weights");
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  BecomeReady(calls);
  return absl::OkStatus();
}

absl::Status BucketAggregator::Restore(const BucketState& state) {
  RETURN_IF_ERROR(weights_.Restore(state));
  if (!weights_.AreFinite()) return NotFinite("weights or optimizer state");
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  context_->counters.MoveBucket(version_, state.version);
  version_ = state.version;
  counted_.Restore(state.counted);
  BecomeReady(calls);
  return absl::OkStatus();
}

absl::Status BucketAggregator::NotFinite(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " of elements ", bucket_.range.begin, " to ", bucket_.range.end,
                   " are not all finite; start from another file or checkpoint"));
}

void BucketAggregator::AwaitClientWeights() {
  absl::MutexLock lock(&mutex_);
  awaits_client_ = true;
}

void BucketAggregator::BecomeReady(DeferredCalls& calls) {
  if (!has_weights_ && context_->counters.BucketHasWeights()) {
    calls.Add([context = context_] { context->observer->OnWeightsComplete(); });
  }
  has_weights_ = true;
  weights_.ResetShadow(version_);
  needs_review_ = true;
  roster_changed_ = true;
}

absl::Status BucketAggregator::CheckKey(const ContributionKey& key) const {
  if (!closed_.ok()) return closed_;
  if (absl::Status fits = CheckForm(key, bucket_, context_->job, awaits_client_); !fits.ok()) {
    return fits;
  }
  if (key.kind == ContributionKind::kInitialWeights) {
    if (!context_->roster.has_members()) return absl::OkStatus();
    return absl::FailedPreconditionError("training has begun; initial weights come before it");
  }
  if (has_weights_) return absl::OkStatus();
  return absl::UnavailableError(awaits_client_ ? "waits for the first client to supply weights"
                                               : "no weights loaded yet");
}

PendingCall BucketAggregator::Begin(const ContributionKey& key, ReadyCallback ready) {
  auto begun = std::make_shared<WaitingPush>(
      WaitingPush{key, std::move(ready), std::make_shared<CallTicket>(), nullptr});
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  begun_.remove_if(
      [](const auto& other) { return other->ticket->is_claimed() && other->request == nullptr; });
  if (!AnswerBegin(begun, FactsForPush(), calls)) begun_.push_back(begun);
  return PendingCall(begun->ticket);
}

void BucketAggregator::LeaveQueue(WaitingPush& begun) {
  if (begun.request == nullptr) return;
  context_->staging->Remove(begun.request);
  begun.request = nullptr;  // it holds `begun` in turn
}

void BucketAggregator::Refuse(WaitingPush& begun, absl::Status status, DeferredCalls& calls) {
  LeaveQueue(begun);
  if (!begun.ticket->Claim()) return;
  context_->counters.CountRejected();
  calls.Add([ready = begun.ready, status = std::move(status)] { ready(status); });
}

void BucketAggregator::GiveDiscard(WaitingPush& begun, PushOutcome outcome, DeferredCalls& calls) {
  LeaveQueue(begun);
  if (!begun.ticket->Claim()) return;
  auto staged = std::make_shared<StagedBucket>();
  staged->key_ = begun.key;
  staged->bucket_ = bucket_.index;
  staged->num_elements_ = bucket_.range.size();
  staged->owner_ = shared_from_this();
  staged->discard_outcome_ = outcome;
  calls.Add([ready = begun.ready, staged] { ready(std::move(*staged)); });
}

bool BucketAggregator::AnswerBegin(const std::shared_ptr<WaitingPush>& begun, const Facts& for_push,
                                   DeferredCalls& calls) {
  if (begun->ticket->is_claimed()) {
    LeaveQueue(*begun);
    return true;
  }
  if (absl::Status status = CheckKey(begun->key); !status.ok()) {
    Refuse(*begun, std::move(status), calls);
    return true;
  }
  if (begun->key.kind == ContributionKind::kInitialWeights) {
    return StageBegin(begun, /*in_turn=*/true, calls);
  }
  const Decision decision = JudgePush(begun->key, for_push);
  switch (decision.action) {
    case Action::kApply:
    case Action::kApplyAlone:
    case Action::kAccumulate:
      return StageBegin(begun, /*in_turn=*/true, calls);
    case Action::kHold:
      return decision.is_due && StageBegin(begun, /*in_turn=*/false, calls);
    case Action::kReject:
      Refuse(*begun, StatusOf(decision), calls);
      return true;
    case Action::kDrop:
      GiveDiscard(*begun, OutcomeOf(decision), calls);
      return true;
  }
  return true;
}

bool BucketAggregator::StageBegin(const std::shared_ptr<WaitingPush>& begun, bool in_turn,
                                  DeferredCalls& calls) {
  std::unique_ptr<StagingSlot> slot;
  if (begun->request != nullptr) {
    if (in_turn) slot = context_->staging->Promote(begun->request);
  } else {
    StagingPool::Acquired acquired = context_->staging->Acquire(
        in_turn, [self = shared_from_this(), begun](std::unique_ptr<StagingSlot> granted) {
          self->OnSlot(begun, std::move(granted));
        });
    slot = std::move(acquired.slot);
    begun->request = std::move(acquired.request);
  }
  if (slot == nullptr) return false;
  GiveSlot(*begun, std::move(slot), calls);
  return true;
}

void BucketAggregator::GiveSlot(WaitingPush& begun, std::unique_ptr<StagingSlot> slot,
                                DeferredCalls& calls) {
  begun.request = nullptr;
  auto staged = std::make_shared<StagedBucket>();
  staged->owner_ = shared_from_this();
  staged->slot_ = std::move(slot);
  staged->key_ = begun.key;
  staged->bucket_ = bucket_.index;
  staged->num_elements_ = bucket_.range.size();
  if (context_->trace != nullptr) staged->given_at_ = context_->trace->Now();
  // Cancelled: the slot still must not go back under the lock.
  const bool is_wanted = begun.ticket->Claim();
  calls.Add([staged, is_wanted, ready = begun.ready] {
    if (is_wanted) ready(std::move(*staged));
  });
}

void BucketAggregator::OnSlot(const std::shared_ptr<WaitingPush>& begun,
                              std::unique_ptr<StagingSlot> slot) {
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  // Not there: answered otherwise meanwhile; the slot goes back after the lock.
  if (begun_.remove(begun) == 0) {
    calls.Add([unused = std::shared_ptr<StagingSlot>(std::move(slot))] {});
    return;
  }
  GiveSlot(*begun, std::move(slot), calls);
}

void BucketAggregator::Finish(StagedBucket staged, DoneCallback done) {
  if (staged.is_discard()) {
    context_->counters.CountOutcome(staged.discard_outcome_);
    done(staged.discard_outcome_);
    return;
  }
  if (context_->trace != nullptr) {
    context_->trace->Add("receive", "receive", staged.given_at_, context_->trace->Now(),
                         {.round = staged.key_.round.value(), .bucket = bucket_.index});
  }
  auto contribution = std::make_shared<Contribution>(
      Contribution{staged.key_, std::move(staged.slot_), std::move(done)});
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  if (!closed_.ok()) {
    calls.Add([contribution, status = closed_] { contribution->done(status); });
    return;
  }
  incoming_.push_back(std::move(*contribution));
  Kick(calls);
}

PendingCall BucketAggregator::Read(WorkerId worker, Incarnation incarnation, Version min_version,
                                   const ReadView& view, ReadCallback done) {
  WaitingRead read = {worker, incarnation,     min_version,
                      view,   std::move(done), std::make_shared<CallTicket>()};
  PendingCall pending(read.ticket);
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  reads_.remove_if([](const WaitingRead& other) { return other.ticket->is_claimed(); });
  if (!AnswerRead(read, calls)) reads_.push_back(std::move(read));
  return pending;
}

bool BucketAggregator::AnswerRead(const WaitingRead& read, DeferredCalls& calls) {
  absl::StatusOr<PublishedBucket> answer = PublishedBucket();
  if (!closed_.ok()) {
    answer = closed_;
  } else if (!has_weights_) {
    answer = awaits_client_
                 ? absl::NotFoundError("the client that brings the model has not supplied weights")
                 : absl::UnavailableError("no weights loaded yet");
  } else {
    const Facts now = FactsNow();
    const Standing standing = read.worker == WorkerId()
                                  ? Standing::kMember
                                  : context_->roster.StandingOf(read.worker, read.incarnation);
    const Decision decision = context_->policy->OnPull(
        {read.worker, read.incarnation, read.min_version, standing}, now.facts);
    if (decision.action == Action::kReject) {
      answer = StatusOf(decision);
    } else if (decision.action != Action::kApply || is_writing_) {
      return false;
    } else {
      answer = weights_.Lend(read.view, version_);
    }
  }
  if (!read.ticket->Claim()) return true;
  calls.Add([done = read.done, answer = std::move(answer)] { done(answer); });
  return true;
}

void BucketAggregator::Capture(std::optional<Version> version, CaptureCallback done) {
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  WaitingCapture capture = {version, std::move(done)};
  if (!AnswerCapture(capture, calls)) captures_.push_back(std::move(capture));
}

bool BucketAggregator::AnswerCapture(const WaitingCapture& capture, DeferredCalls& calls) {
  absl::StatusOr<BucketState> answer = BucketState();
  if (!closed_.ok()) {
    answer = closed_;
  } else if (!has_weights_) {
    answer = absl::FailedPreconditionError("there are no weights to save yet");
  } else if (capture.version.has_value() && *capture.version < version_) {
    answer = absl::FailedPreconditionError(absl::StrCat("bucket ", bucket_.index, " is at version ",
                                                        version_.value(), ", version ",
                                                        capture.version->value(), " is gone"));
  } else if (is_writing_ || (capture.version.has_value() && *capture.version > version_)) {
    return false;
  } else {
    weights_.LendTo(*answer);
    answer->version = version_;
    answer->counted = counted_.Published();
  }
  calls.Add([done = capture.done, answer = std::move(answer)] { done(answer); });
  return true;
}

void BucketAggregator::ReviewWaiting(DeferredCalls& calls) {
  // Once for all that wait: with many workers they are reviewed as often as one of them is counted.
  if (!begun_.empty()) {
    const Facts for_push = FactsForPush();
    begun_.remove_if([&](const auto& begun) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return AnswerBegin(begun, for_push, calls);
    });
  }
  reads_.remove_if([&](const WaitingRead& read)
                       ABSL_NO_THREAD_SAFETY_ANALYSIS { return AnswerRead(read, calls); });
  captures_.remove_if([&](const WaitingCapture& capture)
                          ABSL_NO_THREAD_SAFETY_ANALYSIS { return AnswerCapture(capture, calls); });
}

void BucketAggregator::OnRosterChange() {
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  roster_changed_ = true;
  needs_review_ = true;
  Kick(calls);
}

void BucketAggregator::Shutdown(const absl::Status& status) {
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  if (closed_.ok()) Close(status, calls);
}

void BucketAggregator::Diverge(Round round, absl::string_view what) {
  const std::string text = absl::StrCat("round ", round.value(), " made ", what, " of bucket ",
                                        bucket_.index, " NaN or Inf");
  // First the coordinator, then those who will ask it what to do.
  context_->observer->OnDiverged(round, text);
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  is_writing_ = false;
  if (closed_.ok()) {
    Close(absl::AbortedError(absl::StrCat(text, ": the run has diverged; register again")), calls);
  }
}

void BucketAggregator::Close(const absl::Status& status, DeferredCalls& calls) {
  closed_ = status;
  ReviewWaiting(calls);
  const auto end = [&](Contribution& ended) {
    calls.Add([contribution = std::make_shared<Contribution>(std::move(ended)), status] {
      contribution->done(status);
    });
  };
  for (Contribution& contribution : incoming_) end(contribution);
  for (Contribution& contribution : held_) end(contribution);
  incoming_.clear();
  held_.clear();
}

void BucketAggregator::AwaitIdle() {
  absl::MutexLock lock(&mutex_);
  // A callback of Run() may hold the last reference to the shard, and end it.
  if (runner_ == std::this_thread::get_id()) return;
  mutex_.Await(absl::Condition(
      +[](BucketAggregator* self)
           ABSL_NO_THREAD_SAFETY_ANALYSIS { return self->runner_ == std::thread::id(); },
      this));
}

std::vector<WorkerId> BucketAggregator::Missing() const {
  absl::MutexLock lock(&mutex_);
  std::vector<WorkerId> missing;
  if (phase_ != Phase::kCollecting) return missing;
  const Facts now = FactsNow();
  std::set_difference(now.live.begin(), now.live.end(), contributed_.begin(), contributed_.end(),
                      std::back_inserter(missing));
  return missing;
}

std::vector<RosterMember> BucketAggregator::NotPushed(
    Round round, absl::Span<const RosterMember> reported) const {
  absl::MutexLock lock(&mutex_);
  const bool is_past = version_.value() > round.value() ||
                       (version_.value() == round.value() && phase_ != Phase::kCollecting);
  if (is_past || !closed_.ok()) return {};
  // What is acknowledged has been counted, so that before its turn nothing is.
  const bool is_early = version_.value() < round.value();
  std::vector<RosterMember> lacking;
  for (const RosterMember& member : reported) {
    if (is_early || !std::binary_search(contributed_.begin(), contributed_.end(), member.worker)) {
      lacking.push_back(member);
    }
  }
  return lacking;
}

Version BucketAggregator::version() const {
  absl::MutexLock lock(&mutex_);
  return version_;
}

}  // namespace lodestar
