// SPDX-License-Identifier: Apache-2.0

// BucketAggregator is one bucket. It has the bucket's protocol, which decides, and carries the
// decisions out: it owns the weights, the space for arriving contributions and the callbacks.
//
// The class is thread-safe:
// - It has one mutex. Callbacks are called without it.
// - While the mutex is held, only the mutexes of ShardRoster, ShardCounters, StagingPool, PagePool
//   and Page may be locked. The mutexes of two buckets are never held together.
// - Only Run() uses weights_, samples_ and held_. It runs on the executor, one call at a time.
// - While Run() writes weights (BucketProtocol::is_writing()), no other thread reads them.
//
// With a journal, each step is written to the journal before it is carried out. An answer that
// depends on a step is sent once the step is on disk. The next steps do not wait for the disk.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/job/fragment_plan.h"
#include "common/job/job_spec.h"
#include "common/params/bucket_plan.h"
#include "common/params/layout.h"
#include "common/process/trace_recorder.h"
#include "common/runtime/executor.h"
#include "common/runtime/ids.h"
#include "server/optimizer/optimizer.h"
#include "server/shard/bucket_calls.h"
#include "server/shard/bucket_handles.h"
#include "server/shard/bucket_protocol.h"
#include "server/shard/bucket_weights.h"
#include "server/shard/contribution.h"
#include "server/shard/contribution_samples.h"
#include "server/shard/direction_watch.h"
#include "server/shard/norm_exchange.h"
#include "server/shard/page.h"
#include "server/shard/shard_counters.h"
#include "server/shard/shard_journal.h"
#include "server/shard/shard_observer.h"
#include "server/shard/shard_roster.h"
#include "server/shard/shard_state.h"
#include "server/shard/staging_pool.h"
#include "server/shard/whole_contributions.h"
#include "server/sync/bucket_policy.h"
#include "server/sync/push_space.h"

namespace lodestar::shard {

// A ShardContext holds what all buckets of a shard share. Every member is thread-safe or never
// changes.
struct ShardContext {
  const job::JobSpec job;
  const params::Layout layout;
  const std::unique_ptr<const sync::BucketPolicy> policy;
  const std::unique_ptr<const optimizer::Optimizer> optimizer;
  const std::unique_ptr<const optimizer::Optimizer> averaging;  // for buckets of averaged tensors
  const std::shared_ptr<PagePool> pages;
  const std::shared_ptr<StagingPool> staging;
  const std::unique_ptr<RoundNorm> norm;             // null: updates do not wait for a norm
  const std::unique_ptr<DirectionWatch> directions;  // null: directions are not watched
  ShardJournal* const journal;                       // null: no step is written down
  Executor* const executor;
  process::TraceRecorder* const trace;  // null: no trace
  // Null means that complete contributions are not reported.
  const std::unique_ptr<WholeContributions> contributions;
  ShardCounters counters;
  ShardRoster roster;
  // The observer is set once, before the first bucket exists.
  std::shared_ptr<ShardObserver> observer = std::make_shared<ShardObserver>();
};

class BucketAggregator : public std::enable_shared_from_this<BucketAggregator> {
 public:
  using ReadyCallback = std::function<void(absl::StatusOr<StagedBucket>)>;
  using DoneCallback = std::function<void(absl::StatusOr<PushOutcome>)>;
  using ReadCallback = std::function<void(absl::StatusOr<PublishedBucket>)>;
  using CaptureCallback = std::function<void(absl::StatusOr<BucketState>)>;
  using Filler = std::function<absl::Status(params::ElementRange range, absl::Span<float> weights)>;

  // `position` is the number of the bucket within the shard, from 0.
  BucketAggregator(std::shared_ptr<ShardContext> context, const params::Bucket& bucket,
                   int position, job::FragmentTurn turn);

  const params::Bucket& bucket() const { return bucket_; }

  // These methods do for one bucket what the methods of ParameterShard with the same names do.
  absl::Status Load(const Filler& fill);
  absl::Status Restore(const BucketState& state, Round round);
  void AwaitClientWeights();
  // Replays a record of the journal. May be called after the methods above and before all others.
  // Errors: DataLoss (the record does not follow the last one, or the size of the payload is
  // wrong).
  absl::Status Replay(const StepRecord& record, absl::Span<const std::byte> payload);
  absl::Status Replay(const ShadowRecord& record, absl::Span<const std::byte> payload);
  PendingCall Begin(const ContributionKey& key, ReadyCallback ready);
  void Finish(StagedBucket staged, DoneCallback done);
  PendingCall Read(WorkerId worker, Incarnation incarnation, Round min_round, const ReadView& view,
                   ReadCallback done);
  void Capture(std::optional<Round> round, CaptureCallback done);
  // `weights` is [size of the bucket], and must live until `done` is called.
  void Replace(Round round, absl::Span<const float> weights,
               std::function<void(const absl::Status&)> done);
  void Tick();

  // Must be called when the roster has changed: its members, or its round plans.
  void OnRosterChange();
  void Shutdown(const absl::Status& status);
  // Blocks until no update is under way. Returns at once if it is called from an update of this
  // bucket.
  void AwaitIdle();

  Round round() const;
  std::vector<WorkerId> Missing() const;
  // Returns the members in `reported` whose contribution to `round` is not counted by this bucket,
  // although it should be. All members in `reported` say that they have pushed all buckets of it.
  std::vector<sync::RosterMember> NotPushed(Round round,
                                            absl::Span<const sync::RosterMember> reported) const;
  std::string WaitingFor() const;
  // Appends to `unfinished` the pushes that have space here and are incomplete. Appends to
  // `waiting` the workers whose pushes wait for space.
  void AddPushes(std::vector<sync::UnfinishedPush>& unfinished, std::vector<sync::Pusher>& waiting);

 private:
  // A contribution that counts, but is not in the mean yet. If the next step is the update, Run()
  // adds the contribution and updates the weights in one pass over memory.
  struct Held {
    MeanShare share;
    Contribution contribution;
  };

  // Space that was given to a worker, which may still be writing into it.
  struct Lent {
    StagingSlot* name;
    std::weak_ptr<StagingSlot> slot;
    WorkerId worker;
    Incarnation incarnation;
    Round round;
    int64_t total_bytes;
  };

  // Weights that shall replace the current ones.
  struct Replacement {
    absl::Span<const float> weights;
    std::function<void(const absl::Status&)> done;
  };

  void TakeRoster(std::shared_ptr<const RosterView> roster, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes lent space back from the pushes for which `is_given_up` is true, even if a stream still
  // writes into the space.
  void RevokeIf(absl::FunctionRef<bool(const Lent&)> is_given_up, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NotFinite(absl::string_view what) const;
  void ForgetCancelled() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Carries out the effects that the protocol has decided.
  void Settle(DeferredCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CarryOut(BucketEffect& effect, DeferredCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RequestSlot(CallId push, bool in_turn, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveSlot(PushCall& push, std::shared_ptr<StagingSlot> slot, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnSlot(const std::shared_ptr<PushCall>& push, std::shared_ptr<StagingSlot> slot)
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<StagedBucket> Stage(const PushCall& push) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndPush(PushCall& push);
  void Acknowledge(const BucketEffect& effect, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reports that this bucket of the contribution is about to be acknowledged.
  void NoteSettled(const ContributionKey& key, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the contribution's call with `answer`. The slot is returned only after the answer was
  // sent, without the lock.
  void EndContribution(Contribution contribution, absl::StatusOr<PushOutcome> answer,
                       DeferredCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Sends `answer` once all steps that were given to the journal so far are on disk.
  void Send(std::function<void()> answer, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteDown(const BucketStep& step, const Contribution& contribution)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void WriteDownShadow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnDurable() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CheckPayload(absl::Span<const std::byte> payload, int64_t wanted) const;
  size_t FloatBytes() const { return bucket_.range.size() * sizeof(float); }

  // Makes sure that Run() is running or will run.
  void Kick(DeferredCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Check(Contribution contribution) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const BucketStep& step, Contribution contribution) ABSL_LOCKS_EXCLUDED(mutex_);
  bool MeasuresNorm(const ContributionKey& key) const;
  // Returns the norm of the contribution's elements times the scale. If the contribution is
  // weights, the bucket's weights are subtracted first.
  double NormOf(const Contribution& contribution) const;
  bool ApplyMean(const BucketStep& step) ABSL_LOCKS_EXCLUDED(mutex_);
  void AddHeld();
  // Returns the weights that a contribution of weights is compared with. Returns null for other
  // kinds of contributions.
  const float* BaseOf(const ContributionKey& key) const;
  void Sample(const BucketStep& step, const Contribution& contribution) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndSampledRound(Round round) ABSL_LOCKS_EXCLUDED(mutex_);
  // Copies first weights, or a vector of the state that they come with, to weights_. Errors:
  // ResourceExhausted (no memory).
  absl::Status TakeInitial(const ContributionKey& key, const std::byte* elements);
  void TakeWeights(CallId call, const ContributionKey& key,
                   const std::shared_ptr<StagingSlot>& slot) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReplaceWeights() ABSL_LOCKS_EXCLUDED(mutex_);
  void SubmitNorm(Round round) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnNorm(Round round, const absl::StatusOr<double>& total_square_sum)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Publish() ABSL_LOCKS_EXCLUDED(mutex_);
  void BecomeReady(DeferredCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Closes the bucket because the update of `round` has made its numbers not finite, so that no
  // caller gets them. The bucket stays closed until the coordinator makes the shard begin anew.
  void Diverge(Round round, absl::string_view what) ABSL_LOCKS_EXCLUDED(mutex_);
  void Close(const absl::Status& status, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<ShardContext> context_;
  const params::Bucket bucket_;
  const int position_;
  const bool is_averaged_;  // workers contribute values, whose norms are not watched

  // Only Run() uses the four members below, so mutex_ does not guard them. See the head of the
  // file.
  BucketWeights weights_;
  // The worker that has supplied the initial state in weights_.
  std::pair<WorkerId, Incarnation> state_supplier_;
  ContributionSamples samples_;
  std::optional<Held> held_;

  mutable absl::Mutex mutex_;
  BucketProtocol protocol_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  bool is_ready_ ABSL_GUARDED_BY(mutex_) = false;  // context_->counters was told of the weights
  bool is_pending_ ABSL_GUARDED_BY(mutex_) = false;
  // Round and version that were last reported to the shard's counters.
  BucketPosition counted_position_ ABSL_GUARDED_BY(mutex_);
  bool is_scheduled_ ABSL_GUARDED_BY(mutex_) = false;  // Run() is running or will run
  std::thread::id runner_ ABSL_GUARDED_BY(mutex_);     // thread of the running Run(), if any

  CallTable<std::shared_ptr<PushCall>> pushes_ ABSL_GUARDED_BY(mutex_);
  CallTable<Contribution> contributions_ ABSL_GUARDED_BY(mutex_);
  CallTable<ReadCall> reads_ ABSL_GUARDED_BY(mutex_);
  CallTable<CaptureCall> captures_ ABSL_GUARDED_BY(mutex_);
  std::optional<Replacement> replacement_ ABSL_GUARDED_BY(mutex_);
  std::vector<Lent> lent_ ABSL_GUARDED_BY(mutex_);
  std::deque<Contribution> incoming_ ABSL_GUARDED_BY(mutex_);  // complete, but not checked yet

  // Number of steps that were given to the journal, and number of these that are on disk. Each
  // entry of outbox_ has an answer, and the value of num_durable_ that it waits for.
  int64_t num_written_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_durable_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::pair<int64_t, std::function<void()>>> outbox_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::shard
