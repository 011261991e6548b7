#include "server/shard/parameter_shard.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/initial_weights.h"
#include "server/optimizer/optimizer_factory.h"
#include "server/shard/bucket_aggregator.h"
#include "server/shard/shard_context.h"

namespace lodestar {
namespace {

absl::Status CheckBuckets(ElementRange range, const std::vector<Bucket>& buckets) {
  int64_t end = range.begin;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const Bucket& bucket = buckets[i];
    if (bucket.range.begin != end || bucket.range.size() < 1 ||
        bucket.index != buckets[0].index + i) {
      return absl::InvalidArgumentError(absl::StrCat(
          "bucket ", bucket.index, " has elements ", bucket.range.begin, " to ", bucket.range.end,
          "; expected is bucket ", buckets[0].index + i, " from ", end));
    }
    end = bucket.range.end;
  }
  if (end == range.end && range.size() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("buckets cover elements ", range.begin, " to ",
                                                 end, " of a shard that ends at ", range.end));
}

// A quarter of the shard's weights: much more would only hold early what must wait for its turn.
constexpr int64_t kStagingShare = 4;
// Two streams of two workers that fill one slot each.
constexpr int64_t kMinSlots = 4;

std::shared_ptr<StagingPool> MakeStaging(const std::vector<Bucket>& buckets, int64_t max_bytes) {
  int64_t slot_elements = 0, elements = 0;
  for (const Bucket& bucket : buckets) {
    slot_elements = std::max(slot_elements, bucket.range.size());
    elements += bucket.range.size();
  }
  const int64_t slot_bytes = slot_elements * static_cast<int64_t>(sizeof(float));
  const int64_t wanted = std::max(elements / kStagingShare / slot_elements, kMinSlots);
  const int64_t num_slots = std::clamp<int64_t>(max_bytes / slot_bytes, 2, wanted);
  return std::make_shared<StagingPool>(slot_elements, static_cast<int>(num_slots));
}

// Collects the states of all buckets; the last one calls.
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
  LODESTAR_CHECK(deps.executor != nullptr && deps.policy != nullptr) << "missing dependency";
  if (absl::Status status = CheckBuckets(config.range, config.buckets); !status.ok()) {
    return status;
  }
  const int num_buckets = static_cast<int>(config.buckets.size());
  std::unique_ptr<RoundNorm> norm;
  if (deps.policy->clips_on_server() && config.job.clip_norm > 0.0) {
    LODESTAR_CHECK(deps.norm_exchange != nullptr) << "clipping needs a NormExchange";
    norm = std::make_unique<RoundNorm>(num_buckets, deps.norm_exchange);
  }
  std::unique_ptr<Optimizer> optimizer = MakeServerOptimizer(config.job);
  std::shared_ptr<ShardContext> context(new ShardContext{
      .job = std::move(config.job),
      .layout = std::move(config.layout),
      .policy = std::move(deps.policy),
      .optimizer = std::move(optimizer),
      .staging = MakeStaging(config.buckets, config.staging_bytes),
      .norm = std::move(norm),
      .executor = deps.executor,
      .trace = deps.trace,
      .counters = ShardCounters(num_buckets),
  });
  if (deps.observer != nullptr) context->observer = deps.observer;
  std::vector<std::shared_ptr<BucketAggregator>> buckets;
  for (int i = 0; i < num_buckets; ++i) {
    buckets.push_back(std::make_shared<BucketAggregator>(context, config.buckets[i], i));
  }
  return std::unique_ptr<ParameterShard>(
      new ParameterShard(config.range, std::move(context), std::move(buckets)));
}

ParameterShard::ParameterShard(ElementRange range, std::shared_ptr<ShardContext> context,
                               std::vector<std::shared_ptr<BucketAggregator>> buckets)
    : range_(range), context_(std::move(context)), buckets_(std::move(buckets)) {}

ParameterShard::~ParameterShard() {
  Shutdown(absl::UnavailableError("the server shuts down"));
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) bucket->AwaitIdle();
}

void ParameterShard::LoadInitial(uint64_t seed) {
  const absl::Status status = LoadWeights([&](ElementRange range, absl::Span<float> weights) {
    FillInitialRange(context_->layout, seed, range, weights);
    return absl::OkStatus();
  });
  LODESTAR_CHECK(status.ok()) << status.message();
}

absl::Status ParameterShard::LoadWeights(const WeightsReader& reader) {
  std::vector<absl::Status> results(buckets_.size());
  ParallelFor(*context_->executor, static_cast<int64_t>(buckets_.size()),
              [&](int64_t i) { results[i] = buckets_[i]->Load(reader); });
  absl::Status first;
  for (const absl::Status& status : results) first.Update(status);
  return first;
}

absl::Status ParameterShard::Restore(const ShardState& state) {
  if (state.range != range_ || state.buckets.size() != buckets_.size() ||
      state.state_names != context_->optimizer->state_names()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "state of elements ", state.range.begin, " to ", state.range.end, " in ",
        state.buckets.size(), " buckets with ", state.state_names.size(),
        " state vectors does not fit this shard of elements ", range_.begin, " to ", range_.end,
        " in ", buckets_.size(), " buckets with ", context_->optimizer->num_state_vectors()));
  }
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (absl::Status status = buckets_[i]->Restore(state.buckets[i]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void ParameterShard::AwaitClientWeights() {
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) bucket->AwaitClientWeights();
}

Encoding ParameterShard::pull_encoding() const { return context_->job.pull_encoding; }

bool ParameterShard::HasWeights() const { return context_->counters.AllHaveWeights(); }

void ParameterShard::SetMembers(ViewId view, absl::Span<const RosterMember> members) {
  context_->roster.SetMembers(view, members);
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) bucket->OnRosterChange();
}

void ParameterShard::OpenRound(const RoundPlan& plan) {
  context_->roster.Open(plan, Round(context_->counters.lowest_version().value()));
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) bucket->OnRosterChange();
}

void ParameterShard::Drop(WorkerId worker, Incarnation incarnation, const std::string& reason) {
  context_->roster.Drop(worker, incarnation);
  context_->observer->OnDropped(absl::StrCat("worker ", worker.value(), " incarnation ",
                                             incarnation.value(), " dropped: ", reason));
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) bucket->OnRosterChange();
}

absl::StatusOr<BucketAggregator*> ParameterShard::Find(uint32_t bucket) const {
  const uint32_t first = buckets_.front()->bucket().index;
  if (bucket >= first && bucket - first < buckets_.size()) return buckets_[bucket - first].get();
  return absl::InvalidArgumentError(absl::StrCat("bucket ", bucket,
                                                 " is not on this server, which has ", first,
                                                 " to ", first + buckets_.size() - 1));
}

PendingCall ParameterShard::BeginBucket(const ContributionKey& key, uint32_t bucket,
                                        ReadyCallback ready) {
  const absl::StatusOr<BucketAggregator*> found = Find(bucket);
  if (!found.ok()) {
    context_->counters.CountRejected();
    ready(found.status());
    return PendingCall();
  }
  return (*found)->Begin(key, std::move(ready));
}

void ParameterShard::FinishBucket(StagedBucket bucket, DoneCallback done) {
  const std::shared_ptr<BucketAggregator> owner = bucket.owner_;
  LODESTAR_CHECK(owner != nullptr) << "a StagedBucket that was never given out, or is finished";
  owner->Finish(std::move(bucket), std::move(done));
}

PendingCall ParameterShard::ReadBucket(WorkerId worker, Incarnation incarnation, uint32_t bucket,
                                       Version min_version, ReadCallback done,
                                       const ReadView& view) {
  const absl::StatusOr<BucketAggregator*> found = Find(bucket);
  if (!found.ok()) {
    done(found.status());
    return PendingCall();
  }
  return (*found)->Read(worker, incarnation, min_version, view, std::move(done));
}

void ParameterShard::Snapshot(std::optional<Version> version, SnapshotCallback done) {
  ShardState state;
  state.range = range_;
  state.state_names = context_->optimizer->state_names();
  state.buckets.resize(buckets_.size());
  auto job = std::make_shared<SnapshotJob>(std::move(state), std::move(done));
  for (size_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i]->Capture(version, [job, i](absl::StatusOr<BucketState> bucket) {
      job->Add(static_cast<int>(i), std::move(bucket));
    });
  }
}

ShardStats ParameterShard::stats() const {
  ShardStats stats;
  context_->counters.FillIn(stats);
  stats.weight_bytes = range_.size() * sizeof(float);
  stats.resident_bytes = context_->pages.resident_bytes() + context_->staging->resident_bytes();
  stats.open_round = Round(stats.version.value());
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) {
    if (bucket->version() != stats.version) continue;
    for (WorkerId worker : bucket->Missing()) stats.missing.push_back(worker);
  }
  std::sort(stats.missing.begin(), stats.missing.end());
  stats.missing.erase(std::unique(stats.missing.begin(), stats.missing.end()), stats.missing.end());
  stats.waiting_for = WaitingFor();
  return stats;
}

std::string ParameterShard::WaitingFor() const {
  const Version lowest = context_->counters.lowest_version();
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) {
    if (bucket->version() > lowest) continue;
    if (std::string text = bucket->WaitingFor(); !text.empty()) {
      return absl::StrCat("bucket ", bucket->bucket().index, ": ", text);
    }
  }
  return "";
}

void ParameterShard::Shutdown(const absl::Status& status) {
  for (const std::shared_ptr<BucketAggregator>& bucket : buckets_) bucket->Shutdown(status);
}

}  // namespace lodestar
