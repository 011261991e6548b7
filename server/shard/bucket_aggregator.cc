// SPDX-License-Identifier: Apache-2.0

#include "server/shard/bucket_aggregator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/messages/contribution.h"
#include "common/runtime/status_macros.h"
#include "kernels/codec/encoded_vectors.h"
#include "kernels/vectors/reduce.h"
#include "server/shard/contribution_mean.h"

namespace lodestar::shard {
namespace {

MeanShare ShareOf(const BucketStep& step, const ContributionKey& key) {
  return {.scale = key.scale * step.clip,
          .weight = step.weight,
          .factor = step.factor,
          .order = key.worker.value()};
}

sync::WorkerFault FaultOf(const DirectionWatch::Finding& finding) {
  return {.worker = finding.worker,
          .incarnation = finding.incarnation,
          .round = finding.round,
          .kind = finding.is_opposed ? sync::WorkerFault::Kind::kOpposed
                                     : sync::WorkerFault::Kind::kUnrelated,
          .text = absl::StrFormat(
              "worker %d: the cosine between its contributions and the sum of those of other "
              "workers was %.3f on average in its last rounds; for the other workers it was %.3f",
              finding.worker.value(), finding.cosine, finding.others_cosine)};
}

}  // namespace

BucketAggregator::BucketAggregator(std::shared_ptr<ShardContext> context,
                                   const params::Bucket& bucket, int position,
                                   job::FragmentTurn turn)
    : context_(std::move(context)),
      bucket_(bucket),
      position_(position),
      is_averaged_(context_->layout.is_averaged(bucket.block)),
      weights_({.range = bucket.range, .is_averaged = is_averaged_}, context_->job,
               context_->layout, is_averaged_ ? *context_->averaging : *context_->optimizer,
               *context_->pages),
      samples_(bucket.range.size(), context_->directions == nullptr || is_averaged_
                                        ? 0
                                        : context_->directions->SampledElements(position)),
      protocol_({.policy = context_->policy.get(),
                 .job = &context_->job,
                 .awaits_norm = context_->norm != nullptr,
                 .turn = turn,
                 .divides_by_senders = !is_averaged_ && job::DividesBySenders(context_->job),
                 .bucket = bucket.index}) {
  absl::MutexLock lock(&mutex_);
  protocol_.OnRoster(context_->roster.Now());
}

absl::Status BucketAggregator::Load(const Filler& fill) {
  ASSIGN_OR_RETURN(const absl::Span<float> weights, weights_.InitialWeights());
  RETURN_IF_ERROR(fill(bucket_.range, weights));
  if (!vectors::AllFinite(weights.data(), bucket_.range.size())) return NotFinite("the weights");
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  protocol_.OnWeights(Round(0), Version(0), {});
  BecomeReady(calls);
  return absl::OkStatus();
}

absl::Status BucketAggregator::Restore(const BucketState& state, Round round) {
  RETURN_IF_ERROR(weights_.Restore(state));
  if (!weights_.AreFinite()) return NotFinite("weights or optimizer state");
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  protocol_.OnWeights(round, state.version, state.counted, state.usual_norm, state.delayed);
  BecomeReady(calls);
  return absl::OkStatus();
}

absl::Status BucketAggregator::NotFinite(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " of elements ", bucket_.range.begin, " to ", bucket_.range.end,
                   ", from tensor '", context_->layout.TensorAt(bucket_.range.begin).name, "' to '",
                   context_->layout.TensorAt(bucket_.range.end - 1).name,
                   "', have NaN or Inf; start from another file or checkpoint"));
}

void BucketAggregator::AwaitClientWeights() {
  absl::MutexLock lock(&mutex_);
  protocol_.AwaitClientWeights();
}

void BucketAggregator::BecomeReady(DeferredCalls& calls) {
  if (!std::exchange(is_ready_, true) && context_->counters.BucketHasWeights()) {
    calls.Add([context = context_] { context->observer->OnWeightsComplete(); });
  }
  weights_.ResetShadow(protocol_.version());
  Settle(calls);
}

void BucketAggregator::ForgetCancelled() {
  pushes_.ForEach([this](CallId id, const std::shared_ptr<PushCall>& push)
                      ABSL_NO_THREAD_SAFETY_ANALYSIS {
                        if (!push->ticket->is_claimed()) return;
                        protocol_.ForgetPush(id);
                        EndPush(*push);
                        pushes_.Take(id);
                      });
  reads_.ForEach([this](CallId id, const ReadCall& read) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (!read.ticket->is_claimed()) return;
    protocol_.ForgetRead(id);
    reads_.Take(id);
  });
}

void BucketAggregator::RevokeIf(absl::FunctionRef<bool(const Lent&)> is_given_up,
                                DeferredCalls& calls) {
  std::erase_if(lent_, [&](const Lent& lent) {
    if (!is_given_up(lent)) return false;
    calls.Add([weak = lent.slot] {
      if (const std::shared_ptr<StagingSlot> slot = weak.lock(); slot != nullptr) slot->Revoke();
    });
    return true;
  });
}

PendingCall BucketAggregator::Begin(const ContributionKey& key, ReadyCallback ready) {
  auto push = std::make_shared<PushCall>(
      PushCall{.key = key, .ready = std::move(ready), .ticket = std::make_shared<CallTicket>()});
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  ForgetCancelled();
  // Buckets hear of a new roster one after the other. Other buckets may know a newer roster
  // already, and the push may be to a round that only that roster has.
  if (std::shared_ptr<const RosterView> roster = context_->roster.Now();
      roster != protocol_.roster()) {
    TakeRoster(std::move(roster), calls);
  }
  // If a worker sends a contribution again, it no longer uses the stream of its first attempt. That
  // stream may still hold space, until keepalive ends its connection.
  const auto is_former = [&key](const Lent& lent) {
    return lent.worker == key.worker && lent.incarnation == key.incarnation &&
           lent.round == key.round;
  };
  RevokeIf(is_former, calls);
  push->id = pushes_.Add(push);
  if (absl::Status form =
          CheckForm(key, bucket_, context_->job, is_averaged_, protocol_.awaits_client());
      form.ok()) {
    protocol_.OnPush(push->id, key);
    Settle(calls);
  } else {
    BucketEffect refusal = {.kind = BucketEffect::Kind::kRefusePush, .call = push->id};
    refusal.status = closed_.ok() ? context_->roster.Now()->RefusalFor(key.worker, key.incarnation,
                                                                       std::move(form))
                                  : closed_;
    CarryOut(refusal, calls);
  }
  return PendingCall(push->ticket);
}

void BucketAggregator::Settle(DeferredCalls& calls) {
  std::vector<BucketEffect>& effects = protocol_.effects();
  for (BucketEffect& effect : effects) CarryOut(effect, calls);
  effects.clear();
  if (const bool is_pending = protocol_.has_contributions(); is_pending != is_pending_) {
    is_pending_ = is_pending;
    context_->counters.SetBucketPending(is_pending);
  }
  const BucketPosition now = {protocol_.round(), protocol_.version()};
  const BucketPosition before = std::exchange(counted_position_, now);
  if (now == before) return;
  if (const auto lowest = context_->counters.MoveBucket(before, now);
      lowest.has_value() && context_->trace != nullptr) {
    calls.Add(
        [context = context_, version = *lowest] { context->trace->BeginRound(version.value()); });
  }
}

void BucketAggregator::CarryOut(BucketEffect& effect, DeferredCalls& calls) {
  switch (effect.kind) {
    case BucketEffect::Kind::kRequestSlot:
      return RequestSlot(effect.call, effect.in_turn, calls);
    case BucketEffect::Kind::kDiscardPush:
    case BucketEffect::Kind::kRefusePush: {
      const std::shared_ptr<PushCall> push = pushes_.Take(effect.call);
      EndPush(*push);
      if (!push->ticket->Claim()) return;
      if (effect.kind == BucketEffect::Kind::kRefusePush) {
        context_->counters.CountRejected();
        calls.Add([push, status = std::move(effect.status)] { push->ready(status); });
        return;
      }
      const std::shared_ptr<StagedBucket> staged = Stage(*push);
      staged->discard_outcome_ = effect.outcome;
      calls.Add([push, staged] { push->ready(std::move(*staged)); });
      return;
    }
    case BucketEffect::Kind::kAcknowledge:
      return Acknowledge(effect, calls);
    case BucketEffect::Kind::kRefuse:
      context_->counters.CountRejected();
      return EndContribution(contributions_.Take(effect.call), std::move(effect.status), calls);
    case BucketEffect::Kind::kRead:
    case BucketEffect::Kind::kRefuseRead: {
      ReadCall read = reads_.Take(effect.call);
      absl::StatusOr<PublishedBucket> answer = PublishedBucket();
      if (effect.kind == BucketEffect::Kind::kRefuseRead) {
        answer = std::move(effect.status);
      } else {
        answer = weights_.Lend(read.view, protocol_.version());
      }
      return Send(
          [done = std::move(read.done), ticket = std::move(read.ticket),
           answer = std::move(answer)] {
            if (ticket->Claim()) done(answer);
          },
          calls);
    }
    case BucketEffect::Kind::kCapture:
    case BucketEffect::Kind::kRefuseCapture: {
      absl::StatusOr<BucketState> answer = BucketState();
      if (effect.kind == BucketEffect::Kind::kRefuseCapture) {
        answer = std::move(effect.status);
      } else {
        answer->version = protocol_.version();
        answer->counted = protocol_.counted();
        answer->usual_norm = protocol_.usual_norm();
        answer->delayed = protocol_.delayed();
        weights_.LendTo(*answer);
        WriteDownShadow();
      }
      return Send(
          [done = captures_.Take(effect.call), answer = std::move(answer)] { done(answer); },
          calls);
    }
    case BucketEffect::Kind::kRefuseReplacement:
      calls.Add([done = std::move(replacement_->done), status = std::move(effect.status)] {
        done(status);
      });
      replacement_.reset();
      return;
    case BucketEffect::Kind::kNotice:
      calls.Add([context = context_, status = std::move(effect.status)] {
        context->observer->OnNotice(status.message());
      });
      return;
    case BucketEffect::Kind::kFault:
      calls.Add([context = context_, fault = std::move(effect.fault)] {
        context->observer->OnFault(fault);
      });
      return;
  }
}

void BucketAggregator::RequestSlot(CallId id, bool in_turn, DeferredCalls& calls) {
  const std::shared_ptr<PushCall> push = pushes_.at(id);
  std::shared_ptr<StagingSlot> slot;
  if (push->request != nullptr) {
    if (in_turn) slot = context_->staging->Promote(push->request);
  } else {
    const sync::Pusher pusher = {push->key.worker, push->key.incarnation};
    StagingPool::Acquired acquired = context_->staging->Acquire(
        pusher, in_turn, [self = shared_from_this(), push](std::shared_ptr<StagingSlot> granted) {
          self->OnSlot(push, std::move(granted));
        });
    slot = std::move(acquired.slot);
    push->request = std::move(acquired.request);
  }
  if (slot != nullptr) GiveSlot(*push, std::move(slot), calls);
}

void BucketAggregator::EndPush(PushCall& push) {
  push.is_answered = true;
  if (push.request == nullptr) return;
  context_->staging->Remove(push.request);
  push.request = nullptr;  // the request has a pointer to `push`
}

std::shared_ptr<StagedBucket> BucketAggregator::Stage(const PushCall& push) {
  auto staged = std::make_shared<StagedBucket>();
  staged->owner_ = shared_from_this();
  staged->key_ = push.key;
  staged->bucket_ = bucket_.index;
  staged->num_elements_ = bucket_.range.size();
  if (!push.key.is_skipped()) {
    staged->numbers_.emplace(push.key, bucket_.range.size(), MeasuresNorm(push.key));
  }
  return staged;
}

void BucketAggregator::GiveSlot(PushCall& push, std::shared_ptr<StagingSlot> slot,
                                DeferredCalls& calls) {
  push.request = nullptr;
  push.is_answered = true;
  protocol_.OnSlot(push.id);
  pushes_.Take(push.id);
  std::erase_if(lent_, [](const Lent& lent) { return lent.slot.expired(); });
  lent_.push_back({slot.get(), slot, push.key.worker, push.key.incarnation, push.key.round,
                   push.key.BytesOf(bucket_)});
  const std::shared_ptr<StagedBucket> staged = Stage(push);
  staged->slot_ = std::move(slot);
  if (context_->trace != nullptr) staged->given_at_ = context_->trace->Now();
  // `calls` gets the slot even if the push was cancelled, because the slot must not be returned
  // under the lock.
  const bool is_wanted = push.ticket->Claim();
  calls.Add([staged, is_wanted, ready = std::move(push.ready)] {
    if (is_wanted) ready(std::move(*staged));
  });
}

void BucketAggregator::OnSlot(const std::shared_ptr<PushCall>& push,
                              std::shared_ptr<StagingSlot> slot) {
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  if (!push->is_answered) return GiveSlot(*push, std::move(slot), calls);
  // The push was already answered without a slot. The slot is returned once the lock is released.
  calls.Add([unused = std::move(slot)] {});
}

void BucketAggregator::Finish(StagedBucket staged, DoneCallback done) {
  if (staged.is_discard()) {
    context_->counters.CountOutcome(staged.discard_outcome_);
    DeferredCalls calls;
    absl::MutexLock lock(&mutex_);
    NoteSettled(staged.key_, calls);
    return Send([done = std::move(done), outcome = staged.discard_outcome_] { done(outcome); },
                calls);
  }
  if (context_->trace != nullptr) {
    context_->trace->Add("receive", "receive", staged.given_at_, context_->trace->Now(),
                         {.round = staged.key_.round.value(), .bucket = bucket_.index});
  }
  Contribution contribution = {staged.key_, staged.numbers_, std::move(staged.slot_),
                               std::move(done)};
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  std::erase_if(lent_, [&](const Lent& lent) { return lent.name == contribution.slot.get(); });
  if (!closed_.ok()) return EndContribution(std::move(contribution), closed_, calls);
  incoming_.push_back(std::move(contribution));
  Kick(calls);
}

void BucketAggregator::Acknowledge(const BucketEffect& effect, DeferredCalls& calls) {
  Contribution& contribution = contributions_.at(effect.call);
  if (contribution.key.kind == messages::ContributionKind::kInitialWeights) {
    return EndContribution(contributions_.Take(effect.call), effect.outcome, calls);
  }
  context_->counters.CountOutcome(effect.outcome);
  NoteSettled(contribution.key, calls);
  if (effect.outcome != PushOutcome::kCounted) {
    return EndContribution(contributions_.Take(effect.call), effect.outcome, calls);
  }
  // The contribution stays in contributions_, because a later step needs its numbers.
  context_->counters.CountStaleness(effect.staleness);
  if (contribution.key.is_skipped()) context_->counters.CountSkipped();
  Send([done = std::move(contribution.done)] { done(PushOutcome::kCounted); }, calls);
}

void BucketAggregator::NoteSettled(const ContributionKey& key, DeferredCalls& calls) {
  if (context_->contributions == nullptr) return;
  Send(
      [context = context_, worker = key.worker, life = key.incarnation, round = key.round,
       position = position_] {
        if (context->contributions->Settle(worker, life, round, position)) {
          context->observer->OnContributed(worker, life, round);
        }
      },
      calls);
}

void BucketAggregator::EndContribution(Contribution contribution,
                                       absl::StatusOr<PushOutcome> answer, DeferredCalls& calls) {
  Send([ended = std::make_shared<Contribution>(std::move(contribution)),
        answer = std::move(answer)] { ended->done(answer); },
       calls);
}

void BucketAggregator::Send(std::function<void()> answer, DeferredCalls& calls) {
  if (num_durable_ == num_written_) return calls.Add(std::move(answer));
  outbox_.emplace_back(num_written_, std::move(answer));
}

void BucketAggregator::WriteDown(const BucketStep& step, const Contribution& contribution) {
  const StepRecord record = {.bucket = bucket_.index, .step = step, .key = contribution.key};
  absl::Span<const std::byte> payload;
  if (contribution.slot != nullptr) {
    payload = {contribution.slot->bytes(), static_cast<size_t>(contribution.key.BytesOf(bucket_))};
  }
  context_->journal->Append(record, payload, contribution.slot,
                            [self = shared_from_this()] { self->OnDurable(); });
}

void BucketAggregator::WriteDownShadow() {
  if (context_->journal == nullptr) return;
  const std::shared_ptr<const Page> shadow = weights_.LendShadow();
  if (shadow == nullptr) return;
  context_->journal->Append(ShadowRecord{.bucket = bucket_.index, .version = protocol_.version()},
                            {reinterpret_cast<const std::byte*>(shadow->data()), FloatBytes()},
                            shadow, [] {});
}

void BucketAggregator::OnDurable() {
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  ++num_durable_;
  while (!outbox_.empty() && outbox_.front().first <= num_durable_) {
    calls.Add(std::move(outbox_.front().second));
    outbox_.pop_front();
  }
}

absl::Status BucketAggregator::CheckPayload(absl::Span<const std::byte> payload,
                                            int64_t wanted) const {
  if (static_cast<int64_t>(payload.size()) == wanted) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("a record of bucket ", bucket_.index, " in the journal has ", payload.size(),
                   " bytes of numbers, but ", wanted, " bytes are expected"));
}

absl::Status BucketAggregator::Replay(const ShadowRecord& record,
                                      absl::Span<const std::byte> payload) {
  RETURN_IF_ERROR(CheckPayload(payload, FloatBytes()));
  absl::MutexLock lock(&mutex_);
  if (protocol_.has_weights() && record.version == protocol_.version()) {
    weights_.RestoreShadow(payload.data(), record.version);
  }
  return absl::OkStatus();
}

absl::Status BucketAggregator::Replay(const StepRecord& record,
                                      absl::Span<const std::byte> payload) {
  const BucketStep& step = record.step;
  const ContributionKey& key = record.key;
  const bool has_payload = step.kind == BucketStep::Kind::kAccumulate ||
                           step.kind == BucketStep::Kind::kApplyAlone ||
                           step.kind == BucketStep::Kind::kTakeWeights;
  const int64_t wanted = has_payload ? key.BytesOf(bucket_) : 0;
  RETURN_IF_ERROR(CheckPayload(payload, wanted));
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const bool is_news, protocol_.Replay(step, key));
  if (!is_news) return absl::OkStatus();
  bool is_finite = true;
  switch (step.kind) {
    case BucketStep::Kind::kNone:
      break;
    case BucketStep::Kind::kSum:
      weights_.FinishMean(step.rescale, step.clip);
      break;
    case BucketStep::Kind::kTakeWeights: {
      RETURN_IF_ERROR(TakeInitial(key, payload.data()));
      if (key.state_vector == 0) BecomeReady(calls);
      break;
    }
    case BucketStep::Kind::kSkip:
    case BucketStep::Kind::kReplace:
      break;
    case BucketStep::Kind::kAccumulate:
      weights_.Add(key.kind, key.encoding, payload.data(), ShareOf(step, key));
      break;
    case BucketStep::Kind::kApplyAlone:
      is_finite = weights_.ApplyAlone(step.call, key.kind, key.encoding, payload.data());
      break;
    case BucketStep::Kind::kApply:
      weights_.FinishMean(step.rescale, step.clip);
      is_finite = weights_.ApplyMean(step.call, step.has_update);
      break;
  }
  if (!is_finite) {
    return absl::DataLossError(absl::StrCat("the journal cannot be used: the update of round ",
                                            step.round.value(), " makes elements of bucket ",
                                            bucket_.index,
                                            " NaN or Inf, so the run had diverged before"));
  }
  Settle(calls);
  return absl::OkStatus();
}

PendingCall BucketAggregator::Read(WorkerId worker, Incarnation incarnation, Round min_round,
                                   const ReadView& view, ReadCallback done) {
  const auto ticket = std::make_shared<CallTicket>();
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  ForgetCancelled();
  const CallId id = reads_.Add({view, std::move(done), ticket});
  protocol_.OnRead(id, worker, incarnation, min_round);
  Settle(calls);
  return PendingCall(ticket);
}

void BucketAggregator::Capture(std::optional<Round> round, CaptureCallback done) {
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  protocol_.OnCapture(captures_.Add(std::move(done)), round);
  Settle(calls);
}

void BucketAggregator::Tick() {
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  protocol_.OnTick();
  if (protocol_.WantsStep()) Kick(calls);
  Settle(calls);
}

void BucketAggregator::OnRosterChange() {
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  TakeRoster(context_->roster.Now(), calls);
}

void BucketAggregator::TakeRoster(std::shared_ptr<const RosterView> roster, DeferredCalls& calls) {
  const auto is_gone = [&roster](const Lent& lent) {
    return roster->StandingOf(lent.worker, lent.incarnation) == sync::Standing::kGone;
  };
  RevokeIf(is_gone, calls);
  protocol_.OnRoster(std::move(roster));
  Kick(calls);
}

void BucketAggregator::Shutdown(const absl::Status& status) {
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  Close(status, calls);
}

void BucketAggregator::Diverge(Round round, absl::string_view what) {
  const std::string text = absl::StrCat("round ", round.value(), " made ", what, " of bucket ",
                                        bucket_.index, " NaN or Inf");
  // The coordinator is told first, then the workers that will ask it what to do.
  context_->observer->OnDiverged(round, text);
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  Close(absl::AbortedError(
            absl::StrCat(text, ", so the run has diverged; the worker must register again")),
        calls);
}

void BucketAggregator::Close(const absl::Status& status, DeferredCalls& calls) {
  if (!closed_.ok()) return;
  closed_ = status;
  protocol_.Close(status);
  Settle(calls);
  for (Contribution& contribution : incoming_) {
    EndContribution(std::move(contribution), status, calls);
  }
  incoming_.clear();
}

void BucketAggregator::AwaitIdle() {
  absl::MutexLock lock(&mutex_);
  // If a callback of Run() destroys the shard, Run() itself calls this method, and must not wait
  // for its own end.
  if (runner_ == std::this_thread::get_id()) return;
  mutex_.Await(absl::Condition(
      +[](BucketAggregator* self)
           ABSL_NO_THREAD_SAFETY_ANALYSIS { return self->runner_ == std::thread::id(); },
      this));
}

void BucketAggregator::Kick(DeferredCalls& calls) {
  if (is_scheduled_) return;
  is_scheduled_ = true;
  calls.Add(
      [self = shared_from_this()] { self->context_->executor->Schedule([self] { self->Run(); }); });
}

void BucketAggregator::Run() {
  while (true) {
    BucketStep step;
    Contribution contribution;
    {
      DeferredCalls calls;
      absl::MutexLock lock(&mutex_);
      runner_ = std::this_thread::get_id();
      step = protocol_.NextStep();
      // This line must come before Settle(): an answer that depends on the step waits until
      // num_written_ steps are on disk.
      if (context_->journal != nullptr && step.kind != BucketStep::Kind::kNone) ++num_written_;
      Settle(calls);
      switch (step.kind) {
        case BucketStep::Kind::kAccumulate:
        case BucketStep::Kind::kApplyAlone:
        case BucketStep::Kind::kSkip:
          contribution = contributions_.Take(step.contribution);
          break;
        case BucketStep::Kind::kTakeWeights:
          contribution.key = contributions_.at(step.contribution).key;
          contribution.slot = std::move(contributions_.at(step.contribution).slot);
          break;
        case BucketStep::Kind::kSum:
        case BucketStep::Kind::kApply:
        case BucketStep::Kind::kReplace:
          break;
        case BucketStep::Kind::kNone:
          if (!incoming_.empty()) {
            contribution = std::move(incoming_.front());
            incoming_.pop_front();
          } else if (held_.has_value()) {
            // There is no update for now. So AddHeld() below adds the held contribution to the
            // mean.
          } else if (calls.empty()) {
            runner_ = {};
            is_scheduled_ = false;
            return;
          }
      }
    }
    if (step.kind != BucketStep::Kind::kApply) AddHeld();
    if (step.kind != BucketStep::Kind::kNone) {
      Do(step, std::move(contribution));
    } else if (contribution.slot != nullptr) {
      Check(std::move(contribution));
    }
  }
}

void BucketAggregator::Check(Contribution contribution) {
  const ContributionKey& key = contribution.key;
  process::TraceSpan span(context_->trace, "shard", "check",
                          {.round = key.round.value(), .bucket = bucket_.index});
  std::optional<double> norm;
  absl::Status numbers;
  if (contribution.numbers.has_value()) {
    const std::byte* const elements = contribution.slot->bytes();
    numbers = CheckBytes(key, bucket_, elements);
    if (numbers.ok()) {
      contribution.numbers->Look(elements, key.BytesOf(bucket_));
      numbers = contribution.numbers->Result(key, context_->layout, bucket_);
    }
    if (numbers.ok() && MeasuresNorm(key)) norm = NormOf(contribution);
  }
  if (numbers.ok()) {
    DeferredCalls calls;
    absl::MutexLock lock(&mutex_);
    const CallId id = contributions_.Add(std::move(contribution));
    protocol_.OnArrived(id, contributions_.at(id).key, norm);
    return Settle(calls);
  }
  context_->counters.CountRejected();
  // The coordinator is told before the worker, because the worker may ask the coordinator at once.
  const std::string text(numbers.message());
  if (!absl::IsAborted(numbers)) {
    context_->observer->OnNotice(text);
  } else {
    context_->observer->OnFault({.worker = key.worker,
                                 .incarnation = key.incarnation,
                                 .round = key.round,
                                 .kind = sync::WorkerFault::Kind::kNotFinite,
                                 .text = text});
  }
  contribution.done(absl::IsAborted(numbers)
                        ? absl::AbortedError(absl::StrCat(text, "; register again"))
                        : numbers);
}

void BucketAggregator::Do(const BucketStep& step, Contribution contribution) {
  const ContributionKey& key = contribution.key;
  static constexpr absl::string_view kStages[] = {"", "accumulate", "take", "apply", "norm",
                                                  // The names are indexed by kind.
                                                  "apply", "skip", "replace"};
  process::TraceSpan span(context_->trace, "shard", kStages[static_cast<int>(step.kind)],
                          {.round = step.round.value(), .bucket = bucket_.index});
  if (context_->journal != nullptr) WriteDown(step, contribution);
  switch (step.kind) {
    case BucketStep::Kind::kNone:
    case BucketStep::Kind::kSkip:
      return;
    case BucketStep::Kind::kReplace:
      return ReplaceWeights();
    case BucketStep::Kind::kTakeWeights:
      return TakeWeights(step.contribution, key, contribution.slot);
    case BucketStep::Kind::kAccumulate:
      Sample(step, contribution);
      // With a journal the slot cannot be adopted: the journal may still be writing its bytes.
      if (StagingSlot& slot = *contribution.slot;
          context_->journal == nullptr && (step.clip == 1.0f || BaseOf(key) == nullptr) &&
          weights_.mean().CanAdopt(key.encoding, slot.num_elements())) {
        weights_.mean().Adopt(slot.TakePage(), key.encoding, ShareOf(step, key));
      } else {
        held_ = Held{ShareOf(step, key), std::move(contribution)};
      }
      return;
    case BucketStep::Kind::kApplyAlone:
      if (!weights_.ApplyAlone(step.call, key.kind, key.encoding, contribution.slot->bytes())) {
        return Diverge(step.round, "the numbers");
      }
      return Publish();
    case BucketStep::Kind::kSum:
      EndSampledRound(step.round);
      weights_.FinishMean(step.rescale, step.clip);
      return SubmitNorm(step.round);
    case BucketStep::Kind::kApply:
      if (context_->norm == nullptr) EndSampledRound(step.round);
      if (!ApplyMean(step)) return Diverge(step.round, "the numbers");
      return Publish();
  }
}

bool BucketAggregator::MeasuresNorm(const ContributionKey& key) const {
  return context_->job.norm_limit > 0.0 && !is_averaged_ &&
         key.kind != messages::ContributionKind::kInitialWeights;
}

double BucketAggregator::NormOf(const Contribution& contribution) const {
  const ContributionKey& key = contribution.key;
  const float* const base = BaseOf(key);
  if (base == nullptr) return contribution.numbers->norm();
  return std::sqrt(codec::SquareDistance(key.encoding, contribution.slot->bytes(),
                                         bucket_.range.size(), key.scale, base));
}

bool BucketAggregator::ApplyMean(const BucketStep& step) {
  // FinishAndApply() cannot add weights whose scale is not 1. AddHeld() can.
  const bool is_nearer = held_.has_value() && held_->share.scale != 1.0f &&
                         held_->contribution.key.kind == messages::ContributionKind::kWeights;
  if (!step.has_update || step.clip != 1.0f || is_nearer) {
    AddHeld();
    weights_.FinishMean(step.rescale, step.clip);
    return weights_.ApplyMean(step.call, step.has_update);
  }
  const std::optional<Held> held = std::exchange(held_, std::nullopt);
  std::optional<LastContribution> last;
  if (held.has_value()) {
    last = {held->contribution.key.encoding, held->contribution.slot->bytes(), held->share};
  }
  return weights_.FinishAndApply(step.call, last, step.rescale);
}

void BucketAggregator::AddHeld() {
  const std::optional<Held> held = std::exchange(held_, std::nullopt);
  if (!held.has_value()) return;
  const ContributionKey& key = held->contribution.key;
  process::TraceSpan span(context_->trace, "shard", "add",
                          {.round = key.round.value(), .bucket = bucket_.index});
  weights_.Add(key.kind, key.encoding, held->contribution.slot->bytes(), held->share);
}

const float* BucketAggregator::BaseOf(const ContributionKey& key) const {
  const bool is_change = key.kind == messages::ContributionKind::kWeights && weights_.has_weights();
  return is_change ? weights_.data() : nullptr;
}

void BucketAggregator::Sample(const BucketStep& step, const Contribution& contribution) {
  if (context_->directions == nullptr) return;
  const ContributionKey& key = contribution.key;
  samples_.Add(key.worker, key.incarnation, step.round, key.encoding, contribution.slot->bytes(),
               key.scale, BaseOf(key));
}

void BucketAggregator::EndSampledRound(Round round) {
  if (context_->directions == nullptr) return;
  for (const DirectionWatch::Finding& finding :
       context_->directions->OnRound(round, samples_.EndRound())) {
    context_->observer->OnFault(FaultOf(finding));
  }
}

absl::Status BucketAggregator::TakeInitial(const ContributionKey& key, const std::byte* elements) {
  const std::pair<WorkerId, Incarnation> supplier(key.worker, key.incarnation);
  if (std::exchange(state_supplier_, supplier) != supplier) weights_.DropInitialState();
  ASSIGN_OR_RETURN(const absl::Span<float> space, key.state_vector == 0
                                                      ? weights_.InitialWeights()
                                                      : weights_.InitialState(key.state_vector));
  codec::AccumulateDecoded(key.encoding, elements, bucket_.range.size(), key.scale, space.data(),
                           kernels::Accumulate::kSet);
  return absl::OkStatus();
}

void BucketAggregator::TakeWeights(CallId call, const ContributionKey& key,
                                   const std::shared_ptr<StagingSlot>& slot) {
  const absl::Status taken = TakeInitial(key, slot->bytes());
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  protocol_.OnTaken(call, key, taken);
  if (taken.ok() && key.state_vector == 0) {
    BecomeReady(calls);
  } else {
    Settle(calls);
  }
}

void BucketAggregator::Replace(Round round, absl::Span<const float> weights,
                               std::function<void(const absl::Status&)> done) {
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  if (replacement_.has_value()) {
    return calls.Add([done = std::move(done)] {
      done(absl::FailedPreconditionError(
          "the server is already receiving new weights for this bucket"));
    });
  }
  replacement_ = Replacement{weights, std::move(done)};
  protocol_.OnReplacement(round);
  Settle(calls);
  Kick(calls);
}

void BucketAggregator::ReplaceWeights() {
  Replacement replacement;
  {
    absl::MutexLock lock(&mutex_);
    // If the replacement was refused meanwhile, no caller waits for it.
    if (!replacement_.has_value()) return;
    replacement = *std::exchange(replacement_, std::nullopt);
  }
  const absl::Status replaced = weights_.Replace(replacement.weights);
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  calls.Add([done = std::move(replacement.done), replaced] { done(replaced); });
  protocol_.OnReplaced();
  Settle(calls);
}

void BucketAggregator::SubmitNorm(Round round) {
  std::vector<double> sums = weights_.SegmentSquareSums();
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  Send(
      [self = shared_from_this(), round, sums = std::move(sums)] {
        self->context_->norm->Submit(
            round, self->position_, sums,
            [self, round](const absl::StatusOr<double>& total) { self->OnNorm(round, total); });
      },
      calls);
}

void BucketAggregator::OnNorm(Round round, const absl::StatusOr<double>& total_square_sum) {
  if (total_square_sum.ok() && !std::isfinite(*total_square_sum)) {
    return Diverge(round, "the gradient's norm, and therefore the update,");
  }
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  protocol_.OnNorm(round, total_square_sum);
  Kick(calls);
}

void BucketAggregator::Publish() {
  DeferredCalls calls;
  absl::MutexLock lock(&mutex_);
  protocol_.OnUpdated();
  Settle(calls);
}

Round BucketAggregator::round() const {
  absl::MutexLock lock(&mutex_);
  return protocol_.round();
}

std::vector<WorkerId> BucketAggregator::Missing() const {
  absl::MutexLock lock(&mutex_);
  return protocol_.Missing();
}

std::vector<sync::RosterMember> BucketAggregator::NotPushed(
    Round round, absl::Span<const sync::RosterMember> reported) const {
  absl::MutexLock lock(&mutex_);
  std::vector<sync::RosterMember> lacking;
  for (const sync::RosterMember& member : reported) {
    if (!protocol_.IsSettled(round, member.worker)) lacking.push_back(member);
  }
  return lacking;
}

std::string BucketAggregator::WaitingFor() const {
  absl::MutexLock lock(&mutex_);
  return protocol_.WaitingFor();
}

void BucketAggregator::AddPushes(std::vector<sync::UnfinishedPush>& unfinished,
                                 std::vector<sync::Pusher>& waiting) {
  // This function may become the last holder of a slot. Then the slot returns its space to the
  // pool, which must happen after the lock is released.
  std::vector<std::shared_ptr<StagingSlot>> slots;
  absl::MutexLock lock(&mutex_);
  for (const Lent& lent : lent_) {
    std::shared_ptr<StagingSlot> slot = lent.slot.lock();
    if (slot == nullptr) continue;
    const int64_t received_bytes = slot->received_bytes();
    const absl::Duration silence = slot->silence()->duration();
    slots.push_back(std::move(slot));
    if (received_bytes >= lent.total_bytes) continue;
    unfinished.push_back({.pusher = {lent.worker, lent.incarnation},
                          .round = lent.round,
                          .bucket = bucket_.index,
                          .received_bytes = received_bytes,
                          .total_bytes = lent.total_bytes,
                          .silence = silence});
  }
  pushes_.ForEach([&](CallId, const std::shared_ptr<PushCall>& push) {
    const sync::Pusher pusher = {push->key.worker, push->key.incarnation};
    const bool is_waiting = push->request != nullptr && !push->ticket->is_claimed();
    if (is_waiting && context_->staging->IsOwedMore(pusher)) waiting.push_back(pusher);
  });
}

}  // namespace lodestar::shard
