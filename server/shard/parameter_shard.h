// The weights and optimizer state of one server: takes contributions, applies them as the
// BucketPolicy decides, publishes versions.
//
// Thread-safe. Callbacks are called without a lock held, either before the call returns or later
// from any thread; they must not block. Sums and updates run on the executor, one at a time per
// bucket.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/job_spec.h"
#include "common/params/bucket_plan.h"
#include "common/params/layout.h"
#include "common/plan/shard_memory.h"
#include "common/process/trace_recorder.h"
#include "common/runtime/executor.h"
#include "common/runtime/ids.h"
#include "server/shard/bucket_handles.h"
#include "server/shard/contribution.h"
#include "server/shard/norm_exchange.h"
#include "server/shard/shard_journal.h"
#include "server/shard/shard_observer.h"
#include "server/shard/shard_state.h"
#include "server/shard/staging_pool.h"
#include "server/sync/push_space.h"
#include "server/sync/round_plan.h"

namespace lodestar::shard {

class BucketAggregator;
struct ShardContext;

class ParameterShard {
 public:
  struct Config {
    ElementRange range;
    std::vector<Bucket> buckets;  // those of this shard, in order; Bucket::index is their name
    Layout layout;
    JobSpec job;
    // Workers' lives up to this incarnation have ended: they began with servers before these.
    Incarnation last_of_others = {};
    std::string life_key = {};  // see CoordinatorConfig; for callers that ask the shard for it
    // These bytes are for contributions on their way in. At least two buckets' worth is taken.
    int64_t staging_bytes = kStagingBytes;
    int64_t max_bytes = 0;  // see PagePool::Config
  };
  struct Deps {
    Executor* executor = nullptr;                           // outlives the shard
    std::shared_ptr<NormExchange> norm_exchange = nullptr;  // needed if ClipsMean()
    std::shared_ptr<ShardObserver> observer = nullptr;      // may be null
    TraceRecorder* trace = nullptr;                         // null: no trace; outlives the shard
    ShardJournal* journal = nullptr;  // null: nothing is written down; outlives the shard
    std::function<std::unique_ptr<Page>(int64_t elements)> create_page = &Page::Create;
  };
  using ReadyCallback = std::function<void(absl::StatusOr<StagedBucket>)>;
  using DoneCallback = std::function<void(absl::StatusOr<PushOutcome>)>;
  using ReadCallback = std::function<void(absl::StatusOr<PublishedBucket>)>;
  using SnapshotCallback = std::function<void(absl::StatusOr<ShardState>)>;
  // Fills `weights` with the elements of `range`. Called from several threads.
  using WeightsReader = std::function<absl::Status(ElementRange range, absl::Span<float> weights)>;
  // The saved state of one bucket. Called from several threads.
  using StateReader = std::function<absl::StatusOr<BucketState>(const Bucket& bucket)>;

  // Errors: InvalidArgument if the buckets do not cover the range.
  static absl::StatusOr<std::unique_ptr<ParameterShard>> Create(Config config, Deps deps);
  // Shuts down. Calls on the executor may still be under way; they touch nothing outside.
  ~ParameterShard();

  // Exactly one of these four comes first; before it every push and read is Unavailable. Errors of
  // the first three: ResourceExhausted without memory for them; those of the reader.
  absl::Status LoadInitial(uint64_t seed);
  absl::Status LoadWeights(const WeightsReader& reader);
  // `round` is the cluster's next round, which need not be the number of updates in the state.
  // Errors also: InvalidArgument if a state does not fit its bucket or the optimizer.
  absl::Status Restore(const StateReader& reader, Round round);
  // Version 0 comes as contributions of kind kInitialWeights; until then reads are NotFound.
  void AwaitClientWeights();
  // Comes after one of these, and before anything else. Replays in order what a shard that has
  // begun in the same way has written down. Then EndReplay() is called once, from which on rounds
  // go on. Errors: DataLoss if a record does not follow; ResourceExhausted. The shard is of no use
  // then.
  absl::Status Replay(const ShardRecord& record, absl::Span<const std::byte> payload);
  void EndReplay();
  // These encodings are those that workers push and pull in. If pull_encoding() is fp32, workers
  // pull weights as they are.
  Encoding push_encoding() const;
  Encoding pull_encoding() const;
  int num_buckets() const { return static_cast<int>(buckets_.size()); }
  const std::string& life_key() const { return life_key_; }
  // True once every bucket has weights.
  bool HasWeights() const;

  // The members now. Pushes of an older incarnation, or of a worker that was a member and is not
  // any more, are Aborted; those of an incarnation not seen yet wait for the list that has it.
  void SetMembers(ViewId view, absl::Span<const RosterMember> members);
  // Rounds open in order.
  void OpenRound(const RoundPlan& plan);
  // All that is reported of the rounds before `round` has been counted; what is not here will not
  // come. To open a round says the same.
  void EndRoundsBefore(Round round);
  // The coordinator takes the round for complete by the reports of these members. Those of them
  // whose part is not here are faults: see ShardObserver.
  void CloseRound(Round round, absl::Span<const RosterMember> reported);
  // The worker is not a contributor of any round any more: rounds go on without what it has not yet
  // contributed.
  void Drop(WorkerId worker, Incarnation incarnation, const std::string& reason);

  // Whether this life is a member, as far as this shard has been told.
  bool IsAnnounced(WorkerId worker, Incarnation incarnation) const;
  // Returns what a caller is told whose request does not fit this job: `why`, or Aborted if its
  // life is over.
  absl::Status RefusalFor(WorkerId worker, Incarnation incarnation, absl::Status why) const;

  // Asks for space to receive one bucket of one contribution. `ready` may come later: then the pool
  // is full (read no further from this client), the worker is not a member yet, or the round is not
  // this bucket's turn yet.
  // Errors:
  //   Aborted             older incarnation, not a member any more, or the run has diverged:
  //                       register again.
  //   FailedPrecondition  round further ahead than the next; the text has the expected round.
  //   InvalidArgument     no such bucket here, or a kind or encoding that this job does not take.
  //   Unavailable         no weights loaded yet, or shut down.
  PendingCall BeginBucket(const ContributionKey& key, uint32_t bucket, ReadyCallback ready);

  // The data is whole. `done` is called when it is counted, which may be before it is applied.
  // Errors: those of BeginBucket(); Aborted for numbers that cannot be counted.
  void FinishBucket(StagedBucket bucket, DoneCallback done);

  // Answers with the bucket's newest version, as soon as the rounds before min_round are over in it
  // (where rounds have no rosters, at once); `view` says with which of its numbers. Worker 0 reads
  // without being a member. Errors: Aborted, InvalidArgument, Unavailable as BeginBucket();
  // NotFound if the client's weights have not come yet.
  PendingCall ReadBucket(WorkerId worker, Incarnation incarnation, uint32_t bucket, Round min_round,
                         ReadCallback done, const ReadView& view = {});

  // The state with every bucket exactly where `round` begins, or as they are. Training goes on.
  // Errors: FailedPrecondition if a bucket is past that, or before weights are there.
  void Snapshot(std::optional<Round> round, SnapshotCallback done);

  // `weights`, [elements of the shard], take the place of those that `round` begins with, in every
  // bucket once it collects that round; optimizer state and versions stay. They stay where they are
  // until `done` is called. Not where weights travel as encoded changes, or with a journal. One
  // call at a time. Errors: FailedPrecondition if contributions to the round have come, or it is
  // over; InvalidArgument if weights are not finite; ResourceExhausted; what the shard was shut
  // down with.
  void ReplaceWeights(Round round, absl::Span<const float> weights,
                      const std::function<void(const absl::Status&)>& done);

  // Must be called every second or so. It moves on what no event moves on: a norm that was not to
  // be had is asked for again, and a push in the name of a life that is never announced is
  // Unavailable.
  void Tick();

  ShardStats stats() const;
  // Returns a text for people: what the oldest round waits for. It is empty if the round waits for
  // nothing.
  std::string WaitingFor() const;

  // Ends every waiting call with `status`; later calls get it too.
  void Shutdown(const absl::Status& status);

 private:
  ParameterShard(ElementRange range, std::string life_key, std::shared_ptr<ShardContext> context,
                 std::vector<std::shared_ptr<BucketAggregator>> buckets);
  // Errors: InvalidArgument if the bucket is not of this shard.
  absl::StatusOr<BucketAggregator*> Find(uint32_t bucket) const;
  PushSpace ReadPushSpace() const;
  // Runs on the executor. Returns the first error in the order of the buckets.
  absl::Status ForEachBucket(absl::FunctionRef<absl::Status(BucketAggregator&)> function);

  const ElementRange range_;
  const std::string life_key_;
  const std::shared_ptr<ShardContext> context_;
  const std::vector<std::shared_ptr<BucketAggregator>> buckets_;
};

}  // namespace lodestar::shard
