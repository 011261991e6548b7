// SPDX-License-Identifier: Apache-2.0

// ParameterShard holds the weights and optimizer state of one server. It takes contributions,
// applies them as the BucketPolicy decides, and publishes versions.
//
// It is thread-safe. Callbacks are called without a lock held, either before the call returns or
// later from any thread. They must not block. Sums and updates run on the executor, one at a time
// per bucket.
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
    params::ElementRange range;
    std::vector<params::Bucket>
        buckets;  // buckets of this shard, in order; Bucket::index is their name
    params::Layout layout;
    job::JobSpec job;
    // All incarnations of workers up to this number are over. Earlier processes of the servers gave
    // them.
    Incarnation last_of_others = {};
    std::string life_key = {};  // see CoordinatorConfig; kept for callers of the shard
    // Number of bytes for contributions that are arriving. At least the size of two buckets is
    // used.
    int64_t staging_bytes = plan::kStagingBytes;
    int64_t max_bytes = 0;  // see PagePool::Config
  };
  struct Deps {
    Executor* executor = nullptr;                           // must outlive the shard
    std::shared_ptr<NormExchange> norm_exchange = nullptr;  // needed if ClipsMean()
    std::shared_ptr<ShardObserver> observer = nullptr;      // may be null
    // Null means that there is no trace. The recorder must outlive the shard.
    process::TraceRecorder* trace = nullptr;
    ShardJournal* journal = nullptr;  // null: no steps are written down; must outlive the shard
    std::function<std::unique_ptr<Page>(int64_t elements)> create_page = &Page::Create;
  };
  using ReadyCallback = std::function<void(absl::StatusOr<StagedBucket>)>;
  using DoneCallback = std::function<void(absl::StatusOr<PushOutcome>)>;
  using ReadCallback = std::function<void(absl::StatusOr<PublishedBucket>)>;
  using SnapshotCallback = std::function<void(absl::StatusOr<ShardState>)>;
  // Fills `weights` with the elements of `range`. Called from several threads.
  using WeightsReader =
      std::function<absl::Status(params::ElementRange range, absl::Span<float> weights)>;
  // Returns the saved state of one bucket. Called from several threads.
  using StateReader = std::function<absl::StatusOr<BucketState>(const params::Bucket& bucket)>;

  // Creates a shard that has no weights yet. Errors: InvalidArgument (the buckets do not cover the
  // range).
  static absl::StatusOr<std::unique_ptr<ParameterShard>> Create(Config config, Deps deps);
  // Shuts the shard down. Calls on the executor may still be running, but they touch nothing
  // outside the shard.
  ~ParameterShard();

  // Exactly one of LoadInitial(), LoadWeights(), Restore() and AwaitClientWeights() must be called
  // first. Before that call every push and read is Unavailable. Errors of the first three:
  // ResourceExhausted (no memory); errors of the reader.
  absl::Status LoadInitial(uint64_t seed);
  absl::Status LoadWeights(const WeightsReader& reader);
  // Loads saved states. `round` is the next round of the cluster. It may differ from the number of
  // updates in the states. Errors: those above; InvalidArgument (a state does not fit its bucket or
  // the optimizer).
  absl::Status Restore(const StateReader& reader, Round round);
  // Makes the shard wait for the first weights from a client, as contributions of kind
  // kInitialWeights. They become version 0. Until they have come, reads are NotFound.
  void AwaitClientWeights();
  // Replays one record of the journal of an earlier process. That process must have called the same
  // one of the four methods above, with the same data. Records must be replayed in order, after
  // that method and before all other methods. After the last record, EndReplay() must be called
  // once. After an error the shard must not be used. Errors: DataLoss (the record does not follow
  // the one before); ResourceExhausted.
  absl::Status Replay(const ShardRecord& record, absl::Span<const std::byte> payload);
  void EndReplay();
  // Encodings in which workers push and pull. If pull_encoding() is fp32, workers pull weights
  // without encoding.
  params::Encoding push_encoding() const;
  params::Encoding pull_encoding() const;
  int num_buckets() const { return static_cast<int>(buckets_.size()); }
  const std::string& life_key() const { return life_key_; }
  // Returns true once every bucket has weights.
  bool HasWeights() const;

  // Sets the current members. Pushes of an older incarnation or of a former member are Aborted. A
  // push of an incarnation that is not known yet waits until SetMembers() names that incarnation.
  void SetMembers(ViewId view, absl::Span<const sync::RosterMember> members);
  // Opens a round. Rounds must open in order.
  void OpenRound(const sync::RoundPlan& plan);
  // Must be called when all rounds before `round` are over. Every contribution to them that a
  // worker reported has then been counted, and no other will come. OpenRound() implies this for the
  // rounds before the opened one.
  void EndRoundsBefore(Round round);
  // Must be called when the coordinator counts the round as complete. The members in `reported`
  // have said that they pushed all of it. If a bucket of such a member has not arrived here,
  // reports a fault to the ShardObserver.
  void CloseRound(Round round, absl::Span<const sync::RosterMember> reported);
  // Removes the worker from all rounds. If it has not contributed to a round yet, the round no
  // longer waits for it.
  void Drop(WorkerId worker, Incarnation incarnation, const std::string& reason);

  // Returns true if this incarnation is a member, as far as this shard has been told.
  bool IsAnnounced(WorkerId worker, Incarnation incarnation) const;
  // Returns the status for a caller whose request does not fit this job: Aborted if the caller's
  // incarnation is over, else `why`.
  absl::Status RefusalFor(WorkerId worker, Incarnation incarnation, absl::Status why) const;

  // Requests space to receive one bucket of one contribution. Calls `ready` when the data may be
  // received. Reasons to wait are: the pool is full, the worker is not a member yet, or the
  // BucketPolicy holds the push. Until then, the caller must read no further from this client.
  // Errors:
  //   Aborted             older incarnation, not a member any more, or the run has diverged:
  //                       register again.
  //   FailedPrecondition  round further ahead than the next; the text has the expected round.
  //   InvalidArgument     no such bucket here, or a kind or encoding that this job does not take.
  //   Unavailable         no weights loaded yet, or shut down.
  PendingCall BeginBucket(const ContributionKey& key, uint32_t bucket, ReadyCallback ready);

  // Must be called when all data of a bucket has arrived. `done` is called when the bucket is
  // counted. The update with that bucket may come later. Errors: those of BeginBucket(); Aborted
  // (the numbers cannot be counted).
  void FinishBucket(StagedBucket bucket, DoneCallback done);

  // Reads the newest version of the bucket. Waits until that version includes all rounds before
  // min_round. If the job has no rosters, does not wait. `view` selects what is read: the weights,
  // their shadow, or a vector of the optimizer's state. Worker 0 need not be a member. Errors:
  // Aborted, InvalidArgument (also if there is no such vector), Unavailable as in BeginBucket();
  // NotFound (the client's weights have not come yet).
  PendingCall ReadBucket(WorkerId worker, Incarnation incarnation, uint32_t bucket, Round min_round,
                         ReadCallback done, const ReadView& view = {});

  // Calls `done` with the state of every bucket at the beginning of `round`. If `round` is not set,
  // uses the current state. Training continues meanwhile. Errors: FailedPrecondition (a bucket is
  // past that round, or there are no weights yet).
  void Snapshot(std::optional<Round> round, SnapshotCallback done);

  // Replaces the weights at the beginning of `round` by `weights`, [elements of the shard]. Each
  // bucket does so when it collects contributions to that round. Optimizer state and versions do
  // not change.
  // - `weights` must stay valid until `done` is called.
  // - Only one call may run at a time.
  // - Must not be used with a journal, or if weights travel as encoded changes.
  //
  // Errors: FailedPrecondition (contributions to the round have come, or the round is over);
  // InvalidArgument (weights are not finite); ResourceExhausted; the status of Shutdown().
  void ReplaceWeights(Round round, absl::Span<const float> weights,
                      const std::function<void(const absl::Status&)>& done);

  // Must be called about once a second. If the total norm of a round could not be computed,
  // requests it again. If the incarnation of a waiting call is still not announced after many
  // ticks, answers the call with Unavailable.
  void Tick();

  ShardStats stats() const;
  // Returns a message for operators that says what the oldest round waits for. It is empty if the
  // round waits for nothing.
  std::string WaitingFor() const;

  // Ends every waiting call with `status`. Later calls get the same status.
  void Shutdown(const absl::Status& status);

 private:
  ParameterShard(params::ElementRange range, std::string life_key,
                 std::shared_ptr<ShardContext> context,
                 std::vector<std::shared_ptr<BucketAggregator>> buckets);
  // Returns the bucket with this number. Errors: InvalidArgument (the bucket is not on this shard).
  absl::StatusOr<BucketAggregator*> Find(uint32_t bucket) const;
  sync::PushSpace ReadPushSpace() const;
  // Runs `function` for each bucket on the executor. Returns the first error in the order of the
  // buckets.
  absl::Status ForEachBucket(absl::FunctionRef<absl::Status(BucketAggregator&)> function);

  const params::ElementRange range_;
  const std::string life_key_;
  const std::shared_ptr<ShardContext> context_;
  const std::vector<std::shared_ptr<BucketAggregator>> buckets_;
};

}  // namespace lodestar::shard
