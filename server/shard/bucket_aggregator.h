// BucketAggregator is one bucket: its protocol, and what the protocol does not have. That is the
// numbers, the space for contributions on their way in, the callbacks and a lock.
//
// It is thread-safe. It has one mutex, and callbacks are called without that mutex. The lock order
// is this mutex, then the leaves ShardRoster, ShardCounters, StagingPool, PagePool, Page. The
// mutexes of two buckets are never held together. Only Run() touches the numbers, one call at a
// time, on the executor. While it writes weights (BucketProtocol::is_writing()), no thread reads
// them.
//
// With a journal each step is written down before it is carried out. A call that tells of a step
// leaves once the step is on disk; the next steps do not wait for that.
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

// A ShardContext is what all buckets of a shard share. Every member is thread-safe or never
// changes.
struct ShardContext {
  const JobSpec job;
  const Layout layout;
  const std::unique_ptr<const BucketPolicy> policy;
  const std::unique_ptr<const optimizer::Optimizer> optimizer;
  const std::unique_ptr<const optimizer::Optimizer> averaging;  // of buckets of averaged tensors
  const std::shared_ptr<PagePool> pages;
  const std::shared_ptr<StagingPool> staging;
  const std::unique_ptr<RoundNorm> norm;             // null: updates do not wait for a norm
  const std::unique_ptr<DirectionWatch> directions;  // null: directions are not watched
  ShardJournal* const journal;                       // null: nothing is written down
  Executor* const executor;
  TraceRecorder* const trace;                               // null: no trace
  const std::unique_ptr<WholeContributions> contributions;  // null: whole ones are not told of
  ShardCounters counters;
  ShardRoster roster;
  // Set once, before there are buckets.
  std::shared_ptr<ShardObserver> observer = std::make_shared<ShardObserver>();
};

class BucketAggregator : public std::enable_shared_from_this<BucketAggregator> {
 public:
  using ReadyCallback = std::function<void(absl::StatusOr<StagedBucket>)>;
  using DoneCallback = std::function<void(absl::StatusOr<PushOutcome>)>;
  using ReadCallback = std::function<void(absl::StatusOr<PublishedBucket>)>;
  using CaptureCallback = std::function<void(absl::StatusOr<BucketState>)>;
  using Filler = std::function<absl::Status(ElementRange range, absl::Span<float> weights)>;

  // `position` counts from 0 within the shard.
  BucketAggregator(std::shared_ptr<ShardContext> context, const Bucket& bucket, int position,
                   FragmentTurn turn);

  const Bucket& bucket() const { return bucket_; }

  // See the methods of ParameterShard with these names.
  absl::Status Load(const Filler& fill);
  absl::Status Restore(const BucketState& state, Round round);
  void AwaitClientWeights();
  // Both come before anything else but the methods above. Errors: DataLoss if the record does not
  // follow, or the payload has not its size.
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

  // Members or plans have changed.
  void OnRosterChange();
  void Shutdown(const absl::Status& status);
  // Waits until no update is under way, except for one that this very call comes from.
  void AwaitIdle();

  Round round() const;
  std::vector<WorkerId> Missing() const;
  // The members in `reported` say that they have pushed all of `round`. Returns those whose part is
  // not here.
  std::vector<RosterMember> NotPushed(Round round, absl::Span<const RosterMember> reported) const;
  std::string WaitingFor() const;
  // Adds the pushes that have space here and are not whole, and the pushers that wait for space.
  void AddPushes(std::vector<UnfinishedPush>& unfinished, std::vector<Pusher>& waiting);

 private:
  // A contribution whose numbers are still to be added to the mean. If the update is the next step,
  // one pass does both.
  struct Held {
    MeanShare share;
    Contribution contribution;
  };

  // Space that a worker may be writing into.
  struct Lent {
    StagingSlot* name;
    std::weak_ptr<StagingSlot> slot;
    WorkerId worker;
    Incarnation incarnation;
    Round round;
    int64_t total_bytes;
  };

  // Weights that are to take the place of those there are.
  struct Replacement {
    absl::Span<const float> weights;
    std::function<void(const absl::Status&)> done;
  };

  void TakeRoster(std::shared_ptr<const RosterView> roster, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives the places of such space back, even if a stream still writes into the space.
  void RevokeIf(absl::FunctionRef<bool(const Lent&)> is_given_up, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NotFinite(absl::string_view what) const;
  void ForgetCancelled() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Carries out what the protocol has decided.
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
  // This bucket of the contribution is about to be acknowledged.
  void NoteSettled(const ContributionKey& key, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The slot goes back with the call, which runs without the lock.
  void EndContribution(Contribution contribution, absl::StatusOr<PushOutcome> answer,
                       DeferredCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Sends what tells a caller of steps that were taken, once all of these that are written down are
  // on disk.
  void Send(std::function<void()> answer, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteDown(const BucketStep& step, const Contribution& contribution)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void WriteDownShadow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnDurable() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CheckPayload(absl::Span<const std::byte> payload, int64_t wanted) const;
  size_t FloatBytes() const { return bucket_.range.size() * sizeof(float); }

  // Makes sure that Run() is or will be called.
  void Kick(DeferredCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Check(Contribution contribution) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const BucketStep& step, Contribution contribution) ABSL_LOCKS_EXCLUDED(mutex_);
  bool MeasuresNorm(const ContributionKey& key) const;
  // Returns the norm of the elements times the scale. Where the contribution is weights, the
  // bucket's weights are subtracted first.
  double NormOf(const Contribution& contribution) const;
  bool ApplyMean(const BucketStep& step) ABSL_LOCKS_EXCLUDED(mutex_);
  void AddHeld();
  // Returns what a contribution of weights is a change of. It is null for other contributions.
  const float* BaseOf(const ContributionKey& key) const;
  void Sample(const BucketStep& step, const Contribution& contribution) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndSampledRound(Round round) ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeWeights(CallId call, const ContributionKey& key,
                   const std::shared_ptr<StagingSlot>& slot) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReplaceWeights() ABSL_LOCKS_EXCLUDED(mutex_);
  void SubmitNorm(Round round) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnNorm(Round round, const absl::StatusOr<double>& total_square_sum)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Publish() ABSL_LOCKS_EXCLUDED(mutex_);
  void BecomeReady(DeferredCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The update of `round` has spoilt the numbers, so no caller gets them. The bucket is closed
  // until the coordinator has the shard begin anew.
  void Diverge(Round round, absl::string_view what) ABSL_LOCKS_EXCLUDED(mutex_);
  void Close(const absl::Status& status, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<ShardContext> context_;
  const Bucket bucket_;
  const int position_;
  const bool is_averaged_;  // workers contribute values, whose norms are not watched

  // This is not guarded: see the head of the file.
  BucketWeights weights_;
  ContributionSamples samples_;
  std::optional<Held> held_;

  mutable absl::Mutex mutex_;
  BucketProtocol protocol_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  bool is_ready_ ABSL_GUARDED_BY(mutex_) = false;    // the shard's counters know of its weights
  bool is_pending_ ABSL_GUARDED_BY(mutex_) = false;  // ... and of its open round
  BucketPosition counted_position_ ABSL_GUARDED_BY(mutex_);  // ... and of how far it is
  bool is_scheduled_ ABSL_GUARDED_BY(mutex_) = false;        // Run() is under way or will be
  std::thread::id runner_ ABSL_GUARDED_BY(mutex_);           // of the Run() under way, if any

  CallTable<std::shared_ptr<PushCall>> pushes_ ABSL_GUARDED_BY(mutex_);
  CallTable<Contribution> contributions_ ABSL_GUARDED_BY(mutex_);
  CallTable<ReadCall> reads_ ABSL_GUARDED_BY(mutex_);
  CallTable<CaptureCall> captures_ ABSL_GUARDED_BY(mutex_);
  std::optional<Replacement> replacement_ ABSL_GUARDED_BY(mutex_);
  std::vector<Lent> lent_ ABSL_GUARDED_BY(mutex_);
  std::deque<Contribution> incoming_ ABSL_GUARDED_BY(mutex_);  // whole, and not yet checked

  // Steps that are written down, and those of them that are on disk; what waits for how many.
  int64_t num_written_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_durable_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::pair<int64_t, std::function<void()>>> outbox_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::shard
