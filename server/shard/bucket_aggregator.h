// The life of one bucket: takes whole contributions, asks the BucketPolicy what becomes of each,
// sums and applies, publishes the next version and answers who waited for it.
//
//   collecting --(the policy says apply)--> committing --> [awaiting norm --> norm known] -->
//   applying --(publish: version + 1)--> collecting
//      \---(not finite)--> closed
//
// Thread-safe. One mutex; callbacks are called without it. Lock order: this mutex, then the leaves
// ShardRoster, ShardCounters, StagingPool, PagePool; two buckets' mutexes are never held together.
// Numbers are touched only by Run(), one at a time, on the executor; while it writes weights
// (is_writing_) nobody reads them.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/bucket_plan.h"
#include "common/ids.h"
#include "server/shard/bucket_calls.h"
#include "server/shard/bucket_weights.h"
#include "server/shard/contribution.h"
#include "server/shard/dedup_table.h"
#include "server/shard/deferred_calls.h"
#include "server/shard/pending_call.h"
#include "server/shard/published_bucket.h"
#include "server/shard/shard_context.h"
#include "server/shard/shard_state.h"
#include "server/shard/staged_bucket.h"
#include "server/shard/staging_pool.h"

namespace lodestar {

class BucketAggregator : public std::enable_shared_from_this<BucketAggregator> {
 public:
  using ReadyCallback = std::function<void(absl::StatusOr<StagedBucket>)>;
  using DoneCallback = std::function<void(absl::StatusOr<PushOutcome>)>;
  using ReadCallback = std::function<void(absl::StatusOr<PublishedBucket>)>;
  using CaptureCallback = std::function<void(absl::StatusOr<BucketState>)>;
  using Filler = std::function<absl::Status(ElementRange range, absl::Span<float> weights)>;

  // `position` counts from 0 within the shard.
  BucketAggregator(std::shared_ptr<ShardContext> context, const Bucket& bucket, int position);

  const Bucket& bucket() const { return bucket_; }

  // See the methods of ParameterShard with these names.
  absl::Status Load(const Filler& fill);
  absl::Status Restore(const BucketState& state);
  void AwaitClientWeights();
  PendingCall Begin(const ContributionKey& key, ReadyCallback ready);
  void Finish(StagedBucket staged, DoneCallback done);
  PendingCall Read(WorkerId worker, Incarnation incarnation, Version min_version,
                   const ReadView& view, ReadCallback done);
  void Capture(std::optional<Version> version, CaptureCallback done);

  // Members or plans have changed.
  void OnRosterChange();
  void Shutdown(const absl::Status& status);
  // Until no update is under way, but for one that this very call comes from.
  void AwaitIdle();

  Version version() const;
  std::vector<WorkerId> Missing() const;
  // Those of `reported`, who say that they have pushed all of `round`, whose part is not here.
  std::vector<RosterMember> NotPushed(Round round, absl::Span<const RosterMember> reported) const;
  std::string WaitingFor() const;

 private:
  enum class Phase : uint8_t { kCollecting, kCommitting, kAwaitingNorm, kNormKnown, kApplying };

  // A whole contribution.
  struct Contribution {
    ContributionKey key;
    std::unique_ptr<StagingSlot> slot;
    DoneCallback done;
  };
  // What the policy is asked about, with what the facts point to.
  struct Facts {
    std::shared_ptr<const RoundPlan> plan;
    std::vector<WorkerId> live;
    BucketFacts facts;
  };
  struct Work {
    enum class Kind : uint8_t { kNone, kCheck, kAccumulate, kApplyOne, kSum, kApply };
    Kind kind = Kind::kNone;
    Contribution contribution = {};
    float factor = 1.0f;   // kAccumulate
    float rescale = 1.0f;  // kSum, kApply
    bool has_update = false;
    OptimizerCall call = {};
  };

  // Facts for reading and for the roster; for pushes they are those after the update under way.
  Facts FactsOf(Round round) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Facts FactsNow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Facts FactsForPush() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Decision JudgePush(const ContributionKey& key, const Facts& for_push) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NotFinite(absl::string_view what) const;
  // Refuses what no round could take.
  absl::Status CheckKey(const ContributionKey& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if it is answered, or was cancelled.
  bool AnswerBegin(const std::shared_ptr<WaitingPush>& begun, const Facts& for_push,
                   DeferredCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refuse(WaitingPush& begun, absl::Status status, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveDiscard(WaitingPush& begun, PushOutcome outcome, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaveQueue(WaitingPush& begun);
  bool StageBegin(const std::shared_ptr<WaitingPush>& begun, bool in_turn, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveSlot(WaitingPush& begun, std::unique_ptr<StagingSlot> slot, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnSlot(const std::shared_ptr<WaitingPush>& begun, std::unique_ptr<StagingSlot> slot)
      ABSL_LOCKS_EXCLUDED(mutex_);
  bool AnswerRead(const WaitingRead& read, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AnswerCapture(const WaitingCapture& capture, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReviewWaiting(DeferredCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Makes sure that Run() is or will be called.
  void Kick(DeferredCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  Work NextWork(DeferredCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Work WorkOfPhase(DeferredCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Work WorkOfHeld(DeferredCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Work Count(Contribution contribution, const Decision& decision, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(Work work) ABSL_LOCKS_EXCLUDED(mutex_);
  void Check(Contribution contribution) ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeInitialWeights(Contribution contribution) ABSL_LOCKS_EXCLUDED(mutex_);
  void SubmitNorm() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnNorm(absl::StatusOr<double> total_square_sum) ABSL_LOCKS_EXCLUDED(mutex_);
  void Publish() ABSL_LOCKS_EXCLUDED(mutex_);
  void BecomeReady(DeferredCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The update of `round` has spoilt the numbers: nobody gets them. The bucket is closed until the
  // coordinator has the shard begin anew.
  void Diverge(Round round, absl::string_view what) ABSL_LOCKS_EXCLUDED(mutex_);
  void Close(const absl::Status& status, DeferredCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<ShardContext> context_;
  const Bucket bucket_;
  const int position_;

  // Not guarded: see the head of the file.
  BucketWeights weights_;

  mutable absl::Mutex mutex_;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  bool awaits_client_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_weights_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<std::pair<WorkerId, Incarnation>> supplier_ ABSL_GUARDED_BY(mutex_);
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_scheduled_ ABSL_GUARDED_BY(mutex_) = false;  // Run() is under way or will be
  std::thread::id runner_ ABSL_GUARDED_BY(mutex_);     // of the Run() under way, if any

  Version version_ ABSL_GUARDED_BY(mutex_);
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kCollecting;
  std::vector<WorkerId> contributed_ ABSL_GUARDED_BY(mutex_);  // in this round, ascending
  int64_t arrived_samples_ ABSL_GUARDED_BY(mutex_) = 0;
  float clip_scale_ ABSL_GUARDED_BY(mutex_) = 1.0f;
  std::string norm_error_ ABSL_GUARDED_BY(mutex_);
  DedupTable counted_ ABSL_GUARDED_BY(mutex_);

  std::deque<Contribution> incoming_ ABSL_GUARDED_BY(mutex_);  // not yet checked
  std::list<Contribution> held_ ABSL_GUARDED_BY(mutex_);       // by round, then worker
  std::list<std::shared_ptr<WaitingPush>> begun_ ABSL_GUARDED_BY(mutex_);
  std::list<WaitingRead> reads_ ABSL_GUARDED_BY(mutex_);
  std::list<WaitingCapture> captures_ ABSL_GUARDED_BY(mutex_);
  bool needs_review_ ABSL_GUARDED_BY(mutex_) = false;    // of begun_, reads_, captures_
  bool roster_changed_ ABSL_GUARDED_BY(mutex_) = false;  // ask OnRosterChange
};

}  // namespace lodestar
