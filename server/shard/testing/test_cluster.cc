// SPDX-License-Identifier: Apache-2.0

#include "server/shard/testing/test_cluster.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/messages/contribution.h"
#include "common/params/shard_plan.h"
#include "common/runtime/check.h"
#include "kernels/codec/codec.h"

namespace lodestar::shard {
namespace {

params::TensorSpec Tensor(const std::string& name, std::vector<int64_t> shape, int block,
                          bool decay) {
  params::TensorSpec tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  tensor.block = block;
  tensor.decay = decay;
  tensor.initializer = {params::InitializerKind::kNormal, 0.5f};
  return tensor;
}

params::Layout MakeLayout(bool has_averaged, bool has_embedding) {
  std::vector<params::TensorSpec> tensors = {
      Tensor("first.weight", {40, 30}, 0, true),
      Tensor("first.bias", {30}, 0, false),
      Tensor("second.weight", {30, 70}, 1, !has_averaged),
      Tensor("second.bias", {70}, 1, false),
      Tensor("third.weight", {61, 7}, 2, true),
  };
  for (params::TensorSpec& tensor : tensors) tensor.averaged = has_averaged && tensor.block == 1;
  tensors.back().embedding = has_embedding;
  auto layout = params::Layout::FromTensors(std::move(tensors));
  LODESTAR_CHECK(layout.ok()) << layout.status();
  return *layout;
}

std::vector<sync::RosterMember> Members(const std::vector<int64_t>& samples) {
  std::vector<sync::RosterMember> members;
  for (size_t i = 0; i < samples.size(); ++i) {
    members.push_back({WorkerId(static_cast<uint32_t>(i + 1)), Incarnation(1), samples[i]});
  }
  return members;
}

}  // namespace

TestCluster::TestCluster(Options options)
    : options_(std::move(options)),
      layout_(MakeLayout(options_.has_averaged, options_.has_embedding)),
      norms_(options_.num_shards) {
  ranges_ = *params::PlanShards(layout_, options_.num_shards);
  buckets_ = *params::PlanBuckets(layout_, ranges_, /*bucket_bytes=*/2048);
  for (int i = 0; i < options_.num_shards; ++i) {
    ParameterShard::Config config;
    config.range = ranges_[i];
    std::copy_if(buckets_.begin(), buckets_.end(), std::back_inserter(config.buckets),
                 [i](const params::Bucket& bucket) { return bucket.shard == i; });
    config.layout = layout_;
    config.job = options_.job;
    config.last_of_others = options_.last_of_others;
    config.staging_bytes = options_.staging_bytes;
    config.max_bytes = options_.max_bytes;
    ParameterShard::Deps deps;
    deps.executor = options_.executor != nullptr ? options_.executor : &inline_executor_;
    deps.norm_exchange = norms_.ForShard(i);
    // The test owns the observer.
    deps.observer = std::shared_ptr<ShardObserver>(std::shared_ptr<void>(), options_.observer);
    deps.trace = options_.trace;
    deps.journal = options_.journal;
    if (options_.system_bytes > 0) {
      deps.create_page = [this](int64_t elements) -> std::unique_ptr<Page> {
        const int64_t bytes = elements * static_cast<int64_t>(sizeof(float));
        if (created_bytes_ + bytes > options_.system_bytes) return nullptr;
        created_bytes_ += bytes;
        return Page::Create(elements);
      };
    }
    auto shard = ParameterShard::Create(std::move(config), std::move(deps));
    LODESTAR_CHECK(shard.ok()) << shard.status();
    shards_.push_back(*std::move(shard));
  }
}

void TestCluster::LoadInitial() {
  for (auto& shard : shards_) {
    const absl::Status loaded = shard->LoadInitial(options_.job.seed);
    LODESTAR_CHECK(loaded.ok()) << loaded.message();
  }
}

void TestCluster::LoadConstant(float value) {
  for (auto& shard : shards_) {
    const absl::Status status =
        shard->LoadWeights([value](params::ElementRange, absl::Span<float> weights) {
          std::fill(weights.begin(), weights.end(), value);
          return absl::OkStatus();
        });
    LODESTAR_CHECK(status.ok()) << status;
  }
}

void TestCluster::SetMembers(int num_workers) {
  const std::vector<sync::RosterMember> members = Members(std::vector<int64_t>(num_workers, 0));
  for (auto& shard : shards_) shard->SetMembers(ViewId(1), members);
}

void TestCluster::OpenRound(int64_t round, const std::vector<int64_t>& samples,
                            double learning_rate) {
  const sync::RoundPlan plan = {Round(round), ViewId(1), Members(samples), learning_rate};
  for (auto& shard : shards_) shard->OpenRound(plan);
}

void TestCluster::Drop(int worker) {
  for (auto& shard : shards_) {
    shard->Drop(WorkerId(static_cast<uint32_t>(worker)), Incarnation(1), "test");
  }
}

ContributionKey TestCluster::Key(int worker, int64_t round, int64_t base_version) {
  return {.worker = WorkerId(static_cast<uint32_t>(worker)),
          .incarnation = Incarnation(1),
          .round = Round(round),
          .base_version = Version(base_version)};
}

std::shared_ptr<TestCluster::Push> TestCluster::PushBucket(const ContributionKey& of_all,
                                                           uint32_t bucket,
                                                           const std::vector<float>& values) {
  ContributionKey key = of_all;
  if (layout_.is_averaged(buckets_[bucket].block)) {
    key.encoding = params::Encoding::kFp32;
    key.scale = 1.0f;
  }
  auto push = std::make_shared<Push>();
  ParameterShard* const shard = &shard_of(bucket);
  const params::ElementRange range = buckets_[bucket].range;
  // The values are copied, because BeginBucket() may call the callback after this function has
  // returned.
  const std::vector<float> own(values.begin() + range.begin, values.begin() + range.end);
  shard->BeginBucket(key, bucket, [=](absl::StatusOr<StagedBucket> staged) {
    if (!staged.ok()) {
      push->outcome = staged.status();
      return;
    }
    push->was_discard = staged->is_discard();
    if (!staged->is_discard()) {
      codec::CodecOf(key.encoding).Encode(own.data(), range.size(), {}, staged->bytes().data());
    }
    shard->FinishBucket(*std::move(staged), [push](absl::StatusOr<PushOutcome> outcome) {
      push->outcome = std::move(outcome);
    });
  });
  return push;
}

absl::StatusOr<PushOutcome> TestCluster::PushAll(const ContributionKey& key,
                                                 const std::vector<float>& values) {
  absl::StatusOr<PushOutcome> last = absl::UnknownError("no buckets");
  for (const params::Bucket& bucket : buckets_) {
    const std::shared_ptr<Push> push = PushBucket(key, bucket.index, values);
    if (!push->outcome.has_value()) {
      return absl::DeadlineExceededError(absl::StrCat("bucket ", bucket.index, " waits"));
    }
    last = *push->outcome;
    if (!last.ok()) return last;
  }
  return last;
}

std::vector<float> TestCluster::Vector(int tag) const {
  std::vector<float> values(layout_.num_elements());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(0.37f * static_cast<float>(i) + 1.7f * static_cast<float>(tag)) /
                static_cast<float>(1 + tag % 3);
  }
  return values;
}

absl::StatusOr<PublishedBucket> TestCluster::Read(uint32_t bucket, int64_t round,
                                                  const ReadView& view) {
  absl::StatusOr<PublishedBucket> published = absl::DeadlineExceededError("waits");
  PendingCall call = shard_of(bucket).ReadBucket(
      WorkerId(), Incarnation(), bucket, Round(round),
      [&published](absl::StatusOr<PublishedBucket> answer) { published = std::move(answer); },
      view);
  call.Cancel();
  return published;
}

absl::StatusOr<std::vector<float>> TestCluster::Weights(int64_t version) {
  std::vector<float> weights(layout_.num_elements());
  for (const params::Bucket& bucket : buckets_) {
    const absl::StatusOr<PublishedBucket> published = Read(bucket.index, version);
    if (!published.ok()) return published.status();
    if (published->version != Version(version)) {
      return absl::InternalError(absl::StrCat("bucket ", bucket.index, " is at version ",
                                              published->version.value(), ", not ", version));
    }
    std::copy(published->data().begin(), published->data().end(),
              weights.begin() + bucket.range.begin);
  }
  return weights;
}

absl::Status RestoreFrom(const ShardState& state, ParameterShard& shard, Round round) {
  return shard.Restore(
      [&](const params::Bucket& bucket) -> absl::StatusOr<BucketState> {
        for (const BucketState& saved : state.buckets) {
          if (saved.range == bucket.range) return saved;
        }
        return absl::NotFoundError(absl::StrCat("no state of bucket ", bucket.index));
      },
      round);
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace lodestar::shard
