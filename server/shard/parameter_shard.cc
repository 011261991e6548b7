// SPDX-License-Identifier: Apache-2.0

#include "server/shard/parameter_shard.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/job/fragment_plan.h"
#include "common/params/initial_weights.h"
#include "common/runtime/bytes_text.h"
#include "common/runtime/check.h"
#include "common/runtime/overloaded.h"
#include "common/runtime/status_macros.h"
#include "server/optimizer/optimizer_factory.h"
#include "server/shard/bucket_aggregator.h"
#include "server/sync/policy_factory.h"

namespace lodestar::shard {
namespace {

absl::Status CheckBuckets(params::ElementRange range, const std::vector<params::Bucket>& buckets) {
  int64_t end = range.begin;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const params::Bucket& bucket = buckets[i];
    if (bucket.range.begin != end || bucket.range.size() < 1 ||
        bucket.index != buckets[0].index + i) {
      return absl::InvalidArgumentError(absl::StrCat(
          "bucket ", bucket.index, " has elements ", bucket.range.begin, " to ", bucket.range.end,
          "; expected is bucket ", buckets[0].index + i, " beginning at element ", end));
    }
    end = bucket.range.end;
  }
  if (end == range.end && range.size() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("buckets cover elements ", range.begin, " to ",
                                                 end, " of a shard that ends at ", range.end));
}

std::shared_ptr<StagingPool> MakeStaging(const std::vector<params::Bucket>& buckets,
                                         int64_t max_bytes, std::shared_ptr<PagePool> pages) {
  int64_t slot_elements = 0, elements = 0;
  for (const params::Bucket& bucket : buckets) {
    slot_elements = std::max(slot_elements, bucket.range.size());
    elements += bucket.range.size();
  }
  return std::make_shared<StagingPool>(
      slot_elements, plan::NumStagingSlots(elements, slot_elements, max_bytes), std::move(pages));
}

std::string ShortageText(PagePool::Shortage shortage, int64_t wanted_bytes, int64_t max_bytes) {
  switch (shortage) {
    case PagePool::Shortage::kLimit:
      return absl::StrCat("out of memory: all of ", BytesText(max_bytes),
                          " that this server may use is in use, and it needs ",
                          BytesText(wanted_bytes),
                          " more. Give it more memory (see --memory_limit), or divide the job "
                          "among more servers (--shard=I/K)");
    case PagePool::Shortage::kSystem:
      return absl::StrCat("out of memory: the system does not give ", BytesText(wanted_bytes),
                          " more, so some updates of the open rounds are lost. Free memory, or "
                          "divide the job among more servers (--shard=I/K)");
  }
  return "";
}

// Returns the config of the page pool. The pool reports a shortage under locks of the shard, so the
// observer is called from the executor.
PagePool::Config PagesOf(int64_t max_bytes, const ParameterShard::Deps& deps) {
  PagePool::Config config;
  config.max_bytes = max_bytes;
  config.create = deps.create_page;
  if (deps.observer == nullptr) return config;
  config.on_shortage = [executor = deps.executor, observer = deps.observer, max_bytes](
                           PagePool::Shortage shortage, int64_t wanted_bytes) {
    executor->Schedule(
        [=] { observer->OnOutOfMemory(ShortageText(shortage, wanted_bytes, max_bytes)); });
  };
  return config;
}

// Collects the states of all buckets, and calls `done` after the last.
class SnapshotJob {
 public:
  SnapshotJob(ShardState state, ParameterShard::SnapshotCallback done)
      : done_(std::move(done)),
        remaining_(static_cast<int>(state.buckets.size())),
        state_(std::move(state)) {}

  void Add(int position, absl::StatusOr<BucketState> bucket) {
    absl::StatusOr<ShardState> result = ShardState();
    {
      absl::MutexLock lock(&mutex_);
      if (bucket.ok()) {
        state_.buckets[position] = *std::move(bucket);
      } else {
        status_.Update(bucket.status());
      }
      if (--remaining_ > 0) return;
      if (status_.ok()) {
        result = std::move(state_);
      } else {
        result = status_;
      }
    }
    done_(std::move(result));
  }

 private:
  const ParameterShard::SnapshotCallback done_;
  absl::Mutex mutex_;
  int remaining_ ABSL_GUARDED_BY(mutex_);
  ShardState state_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterShard>> ParameterShard::Create(Config config, Deps deps) {
  LODESTAR_CHECK(deps.executor != nullptr) << "missing dependency";
  if (absl::Status status = CheckBuckets(config.range, config.buckets); !status.ok()) {
    return status;
  }
  const int num_buckets = static_cast<int>(config.buckets.size());
  std::unique_ptr<RoundNorm> norm;
  if (sync::ClipsMean(config.job)) {
    LODESTAR_CHECK(deps.norm_exchange != nullptr) << "clipping needs a NormExchange";
    RoundNorm::Note note;
    if (deps.journal != nullptr) {
      note = [journal = deps.journal](Round round, double total_square_sum) {
        journal->Append(NormRecord{round, total_square_sum}, {}, nullptr, [] {});
      };
    }
    norm = std::make_unique<RoundNorm>(num_buckets, std::move(deps.norm_exchange), std::move(note));
  }
  std::unique_ptr<DirectionWatch> directions;
  // In elastic averaging each worker keeps weights of its own. So contributions of honest workers
  // often oppose each other, and directions are not watched.
  if (config.job.norm_limit > 0.0 && !job::IsElastic(config.job)) {
    directions = std::make_unique<DirectionWatch>(num_buckets);
  }
  std::unique_ptr<const sync::BucketPolicy> policy = sync::MakeBucketPolicy(config.job);
  std::unique_ptr<optimizer::Optimizer> optimizer = optimizer::MakeServerOptimizer(config.job);
  std::unique_ptr<optimizer::Optimizer> averaging = optimizer::MakeAveraging(config.job);
  const job::FragmentPlan fragments(config.buckets, config.job.fragments);
  // If contributions are deferred, a round may exchange only some of the buckets. Then complete
  // contributions are not reported.
  auto contributions = job::DefersContributions(config.job)
                           ? nullptr
                           : std::make_unique<WholeContributions>(num_buckets);
  const auto pages = std::make_shared<PagePool>(PagesOf(config.max_bytes, deps));
  std::shared_ptr<ShardContext> context(new ShardContext{
      .job = std::move(config.job),
      .layout = std::move(config.layout),
      .policy = std::move(policy),
      .optimizer = std::move(optimizer),
      .averaging = std::move(averaging),
      .pages = pages,
      .staging = MakeStaging(config.buckets, config.staging_bytes, pages),
      .norm = std::move(norm),
      .directions = std::move(directions),
      .journal = deps.journal,
      .executor = deps.executor,
      .trace = deps.trace,
      .contributions = std::move(contributions),
      .counters = ShardCounters(num_buckets),
      .roster = ShardRoster(config.last_of_others),
  });
  if (deps.observer != nullptr) context->observer = std::move(deps.observer);
  std::vector<std::shared_ptr<BucketAggregator>> buckets;
  buckets.reserve(num_buckets);
  for (int i = 0; i < num_buckets; ++i) {
    buckets.push_back(
        std::make_shared<BucketAggregator>(context, config.buckets[i], i, fragments.TurnOf(i)));
  }
  return std::unique_ptr<ParameterShard>(new ParameterShard(
      config.range, std::move(config.life_key), std::move(context), std::move(buckets)));
}

ParameterShard::ParameterShard(params::ElementRange range, std::string life_key,
                               std::shared_ptr<ShardContext> context,
                               std::vector<std::shared_ptr<BucketAggregator>> buckets)
    : range_(range),
      life_key_(std::move(life_key)),
      context_(std::move(context)),
      buckets_(std::move(buckets)) {}

ParameterShard::~ParameterShard() {
  Shutdown(absl::UnavailableError("the server shuts down"));
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) bucket->AwaitIdle();
}

absl::Status ParameterShard::LoadInitial(uint64_t seed) {
  return LoadWeights([&](params::ElementRange range, absl::Span<float> weights) {
    params::FillInitialRange(context_->layout, seed, range, weights);
    return absl::OkStatus();
  });
}

absl::Status ParameterShard::LoadWeights(const WeightsReader& reader) {
  return ForEachBucket([&](BucketAggregator& bucket) { return bucket.Load(reader); });
}

absl::Status ParameterShard::Restore(const StateReader& reader, Round round) {
  return ForEachBucket([&](BucketAggregator& bucket) -> absl::Status {
    const absl::StatusOr<BucketState> state = reader(bucket.bucket());
    return state.ok() ? bucket.Restore(*state, round) : state.status();
  });
}

absl::Status ParameterShard::ForEachBucket(
    absl::FunctionRef<absl::Status(BucketAggregator&)> function) {
  std::vector<absl::Status> results(buckets_.size());
  ParallelFor(*context_->executor, static_cast<int64_t>(buckets_.size()),
              [&](int64_t i) { results[i] = function(*buckets_[i]); });
  absl::Status first;
  for (const absl::Status& status : results) first.Update(status);
  return first;
}

void ParameterShard::AwaitClientWeights() {
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) bucket->AwaitClientWeights();
}

params::Encoding ParameterShard::push_encoding() const { return context_->job.push_encoding; }
params::Encoding ParameterShard::pull_encoding() const { return context_->job.pull_encoding; }

bool ParameterShard::HasWeights() const { return context_->counters.AllHaveWeights(); }

void ParameterShard::SetMembers(ViewId view, absl::Span<const sync::RosterMember> members) {
  context_->roster.SetMembers(view, members);
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) bucket->OnRosterChange();
}

absl::Status ParameterShard::Replay(const ShardRecord& record,
                                    absl::Span<const std::byte> payload) {
  const auto replay = Overloaded{
      [&](const sync::RoundPlan& plan) {
        context_->roster.Open(plan, context_->counters.lowest_round());
        return absl::OkStatus();
      },
      [&](const NormRecord& norm) -> absl::Status {
        if (context_->norm == nullptr) {
          return absl::DataLossError(
              "the journal has a gradient norm, but this job does not clip gradients, so the "
              "journal belongs to another job");
        }
        context_->norm->Restore(norm.round, norm.total_square_sum);
        return absl::OkStatus();
      },
      [&](const auto& of_bucket) -> absl::Status {
        const absl::StatusOr<BucketAggregator*> bucket = Find(of_bucket.bucket);
        if (!bucket.ok()) return absl::DataLossError(bucket.status().message());
        return (*bucket)->Replay(of_bucket, payload);
      },
  };
  RETURN_IF_ERROR(std::visit(replay, record));
  // If memory for an update is missing, the bucket leaves the update out and reports no error. So
  // this method must check for a shortage.
  if (!context_->pages->has_run_short()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("out of memory at ", BytesText(context_->pages->resident_bytes()),
                   ", before all acknowledged contributions are applied; give the server more "
                   "memory (see --memory_limit)"));
}

void ParameterShard::EndReplay() {
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) bucket->OnRosterChange();
}

void ParameterShard::OpenRound(const sync::RoundPlan& plan) {
  // The plan must be in the journal before the steps that buckets make for this round.
  if (context_->journal != nullptr) context_->journal->Append(plan, {}, nullptr, [] {});
  context_->roster.Open(plan, context_->counters.lowest_round());
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) bucket->OnRosterChange();
}

void ParameterShard::EndRoundsBefore(Round round) {
  context_->roster.EndBefore(round);
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) bucket->OnRosterChange();
}

void ParameterShard::CloseRound(Round round, absl::Span<const sync::RosterMember> reported) {
  std::set<WorkerId> told;
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) {
    for (const sync::RosterMember& member : bucket->NotPushed(round, reported)) {
      if (!told.insert(member.worker).second) continue;
      context_->observer->OnFault(
          {.worker = member.worker,
           .incarnation = member.incarnation,
           .round = round,
           .kind = sync::WorkerFault::Kind::kNotPushed,
           .text =
               absl::StrCat("worker ", member.worker.value(), " has reported round ", round.value(),
                            " but has not sent its part of bucket ", bucket->bucket().index)});
    }
  }
}

void ParameterShard::Drop(WorkerId worker, Incarnation incarnation, const std::string& reason) {
  context_->roster.Drop(worker, incarnation);
  context_->observer->OnDropped(absl::StrCat("worker ", worker.value(),
                                             " does not take part any more (", reason,
                                             "; incarnation ", incarnation.value(), ")"));
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) bucket->OnRosterChange();
}

absl::StatusOr<BucketAggregator*> ParameterShard::Find(uint32_t bucket) const {
  const uint32_t first = buckets_.front()->bucket().index;
  if (bucket >= first && bucket - first < buckets_.size()) return buckets_[bucket - first].get();
  return absl::InvalidArgumentError(absl::StrCat("bucket ", bucket,
                                                 " is not on this server, which has buckets ",
                                                 first, " to ", first + buckets_.size() - 1));
}

bool ParameterShard::IsAnnounced(WorkerId worker, Incarnation incarnation) const {
  return context_->roster.Now()->StandingOf(worker, incarnation) == sync::Standing::kMember;
}

absl::Status ParameterShard::RefusalFor(WorkerId worker, Incarnation incarnation,
                                        absl::Status why) const {
  return context_->roster.Now()->RefusalFor(worker, incarnation, std::move(why));
}

PendingCall ParameterShard::BeginBucket(const ContributionKey& key, uint32_t bucket,
                                        ReadyCallback ready) {
  const absl::StatusOr<BucketAggregator*> found = Find(bucket);
  if (!found.ok()) {
    context_->counters.CountRejected();
    ready(RefusalFor(key.worker, key.incarnation, found.status()));
    return PendingCall();
  }
  return (*found)->Begin(key, std::move(ready));
}

void ParameterShard::FinishBucket(StagedBucket bucket, DoneCallback done) {
  const std::shared_ptr<BucketAggregator> owner = bucket.owner_;
  LODESTAR_CHECK(owner != nullptr)
      << "this StagedBucket was never given out, or is finished already";
  owner->Finish(std::move(bucket), std::move(done));
}

PendingCall ParameterShard::ReadBucket(WorkerId worker, Incarnation incarnation, uint32_t bucket,
                                       Round min_round, ReadCallback done, const ReadView& view) {
  const absl::StatusOr<BucketAggregator*> found = Find(bucket);
  if (!found.ok()) {
    done(RefusalFor(worker, incarnation, found.status()));
    return PendingCall();
  }
  if (const int of_optimizer = context_->optimizer->num_state_vectors();
      view.state_vector > static_cast<uint32_t>(of_optimizer)) {
    done(
        RefusalFor(worker, incarnation,
                   absl::InvalidArgumentError(absl::StrCat(
                       "vector ", view.state_vector,
                       " of the optimizer's state is asked for, but the optimizer of this job has ",
                       of_optimizer, " such vectors; ask for one of these"))));
    return PendingCall();
  }
  return (*found)->Read(worker, incarnation, min_round, view, std::move(done));
}

void ParameterShard::Snapshot(std::optional<Round> round, SnapshotCallback done) {
  ShardState state;
  state.range = range_;
  state.state_names = context_->optimizer->state_names();
  state.buckets.resize(buckets_.size());
  auto job = std::make_shared<SnapshotJob>(std::move(state), std::move(done));
  for (size_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i]->Capture(round, [job, i](absl::StatusOr<BucketState> bucket) {
      job->Add(static_cast<int>(i), std::move(bucket));
    });
  }
}

void ParameterShard::ReplaceWeights(Round round, absl::Span<const float> weights,
                                    const std::function<void(const absl::Status&)>& done) {
  struct Outcome {
    explicit Outcome(size_t num_buckets) : remaining(num_buckets) {}

    absl::Mutex mutex;
    size_t remaining ABSL_GUARDED_BY(mutex);
    absl::Status status ABSL_GUARDED_BY(mutex);
  };
  auto outcome = std::make_shared<Outcome>(buckets_.size());
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) {
    const params::ElementRange range = bucket->bucket().range;
    bucket->Replace(round, weights.subspan(range.begin - range_.begin, range.size()),
                    [outcome, done](const absl::Status& replaced) {
                      absl::Status status;
                      {
                        absl::MutexLock lock(&outcome->mutex);
                        outcome->status.Update(replaced);
                        if (--outcome->remaining > 0) return;
                        status = outcome->status;
                      }
                      done(status);
                    });
  }
}

ShardStats ParameterShard::stats() const {
  ShardStats stats;
  context_->counters.FillIn(stats);
  stats.weight_bytes = range_.size() * sizeof(float);
  stats.resident_bytes = context_->pages->resident_bytes();
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) {
    if (bucket->round() != stats.open_round) continue;
    for (WorkerId worker : bucket->Missing()) stats.missing.push_back(worker);
  }
  std::sort(stats.missing.begin(), stats.missing.end());
  stats.missing.erase(std::unique(stats.missing.begin(), stats.missing.end()), stats.missing.end());
  stats.waiting_for = WaitingFor();
  stats.push_space = ReadPushSpace();
  return stats;
}

sync::PushSpace ParameterShard::ReadPushSpace() const {
  std::vector<sync::UnfinishedPush> unfinished;
  std::vector<sync::Pusher> waiting;
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) {
    bucket->AddPushes(unfinished, waiting);
  }
  return sync::PushSpaceOf(unfinished, waiting);
}

std::string ParameterShard::WaitingFor() const {
  const Round lowest = context_->counters.lowest_round();
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) {
    if (bucket->round() > lowest) continue;
    if (std::string text = bucket->WaitingFor(); !text.empty()) {
      return absl::StrCat("bucket ", bucket->bucket().index, ": ", text);
    }
  }
  return "";
}

void ParameterShard::Tick() {
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) bucket->Tick();
}

void ParameterShard::Shutdown(const absl::Status& status) {
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) bucket->Shutdown(status);
}

}  // namespace lodestar::shard
