// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/testing/local_parameter_server.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "common/params/initial_weights.h"
#include "common/params/layout.h"
#include "common/runtime/check.h"
#include "kernels/codec/codec.h"

namespace lodestar::trainer {

class LocalParameterServer::Push final : public client::PushSession {
 public:
  Push(LocalParameterServer* owner, const client::ContributionHeader& header)
      : owner_(owner),
        header_(header),
        // This server has only one worker, so each contribution ends a round. If the round of this
        // contribution is over, the contribution was already counted.
        is_duplicate_(header.round.value() < owner->version().value()) {}
  void AddBucket(uint32_t bucket, Version base_version, absl::Span<const std::byte> data) override {
    LODESTAR_CHECK(is_duplicate_ || base_version == owner_->versions_[bucket])
        << "computed on version " << base_version;
    owner_->on_add_(bucket);
    const int64_t elements = owner_->registration_.buckets()[bucket].range.size();
    const bool is_skipped = header_.num_samples == messages::kSkippedSamples;
    const int64_t bytes = is_skipped ? 0 : params::EncodedBytes(header_.encoding, elements);
    LODESTAR_CHECK(data.size() == static_cast<size_t>(bytes))
        << data.size() << " bytes of bucket " << bucket;
    std::vector<float>& values = contributions_[bucket];
    if (!is_skipped) {
      values.resize(elements);
      codec::CodecOf(header_.encoding).Decode(data.data(), elements, values.data());
    }
    owner_->pushed_[bucket].assign(data.begin(), data.end());
  }
  absl::StatusOr<client::PushResult> Finish() override {
    owner_->on_finish_();
    const absl::Status failure = std::exchange(owner_->push_failure_, absl::OkStatus());
    if (!failure.ok() && !owner_->counts_before_failing_) return failure;
    client::PushResult result;
    const auto num_buckets = static_cast<int64_t>(contributions_.size());
    if (is_duplicate_) {
      result.buckets_duplicate = num_buckets;
    } else {
      owner_->last_header_ = header_;
      for (const auto& [bucket, values] : contributions_) {
        if (values.empty()) continue;
        owner_->Apply(header_, owner_->registration_.buckets()[bucket].range, values.data());
        owner_->versions_[bucket] = owner_->versions_[bucket] + 1;
      }
      result.buckets_counted = num_buckets;
      absl::MutexLock lock(&owner_->mutex_);
      ++owner_->rounds_done_;
    }
    if (!failure.ok()) return failure;
    return result;
  }
  void Cancel() override {}
  int64_t bytes_unsent() override { return owner_->bytes_unsent_; }

 private:
  LocalParameterServer* const owner_;
  const client::ContributionHeader header_;
  const bool is_duplicate_;
  std::map<uint32_t, std::vector<float>> contributions_;
};

class LocalParameterServer::Pull final : public client::PullSession {
 public:
  Pull(LocalParameterServer* owner, client::PullSpec spec, BucketCallback on_bucket)
      : owner_(owner), spec_(std::move(spec)), on_bucket_(std::move(on_bucket)) {}
  absl::Status Wait() override {
    owner_->on_pull_();
    {
      absl::MutexLock lock(&owner_->mutex_);
      const auto may_go_on = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(owner_->mutex_) {
        return is_cancelled_ ||
               (!owner_->holds_pulls_ && owner_->rounds_done_ >= spec_.min_round.value());
      };
      owner_->mutex_.Await(absl::Condition(&may_go_on));
      if (is_cancelled_) return absl::CancelledError("the pull was cancelled");
    }
    for (const client::PullTarget& target : spec_.targets) {
      const auto begin =
          owner_->weights_.begin() + owner_->registration_.buckets()[target.bucket].range.begin;
      std::copy(begin, begin + target.destination.size(), target.destination.begin());
      on_bucket_({target.bucket, owner_->versions_[target.bucket]});
    }
    return absl::OkStatus();
  }
  void Cancel() override {
    absl::MutexLock lock(&owner_->mutex_);
    is_cancelled_ = true;
  }

 private:
  LocalParameterServer* const owner_;
  const client::PullSpec spec_;
  const BucketCallback on_bucket_;
  bool is_cancelled_ ABSL_GUARDED_BY(owner_->mutex_) = false;
};

LocalParameterServer::LocalParameterServer(const job::JobSpec& job, double learning_rate)
    : learning_rate_(static_cast<float>(learning_rate)) {
  registration_.job = job;
  auto map = std::make_shared<messages::ClusterMap>();
  map->layout = *params::BuildLayout(job.model);
  const int64_t size = map->layout.num_elements();
  map->servers = {{0, "nowhere:1", {0, size}}};
  map->buckets = *params::PlanBuckets(map->layout, {{0, size}}, job.bucket_bytes);
  registration_.map = std::move(map);
  pushed_.resize(registration_.buckets().size());
  versions_.resize(registration_.buckets().size());
  weights_.resize(size);
  momentum_.resize(size);
  params::FillInitialRange(registration_.layout(), job.seed, {0, size}, absl::MakeSpan(weights_));
}

std::unique_ptr<client::PushSession> LocalParameterServer::StartPush(
    const client::ContributionHeader& header) {
  return std::make_unique<Push>(this, header);
}

std::unique_ptr<client::PullSession> LocalParameterServer::StartPull(client::PullSpec spec,
                                                                     BucketCallback on_bucket) {
  {
    absl::MutexLock lock(&mutex_);
    asked_.clear();
    for (const client::PullTarget& target : spec.targets) asked_.push_back(target.bucket);
  }
  return std::make_unique<Pull>(this, std::move(spec), std::move(on_bucket));
}

void LocalParameterServer::Apply(const client::ContributionHeader& header,
                                 params::ElementRange range, const float* contribution) {
  for (int64_t i = range.begin; i < range.end; ++i) {
    const float value = contribution[i - range.begin];
    switch (header.kind) {
      case messages::ContributionKind::kGradient:
        weights_[i] -= learning_rate_ * (header.scale * value);
        break;
      case messages::ContributionKind::kPseudoGradient:
        momentum_[i] = outer_momentum_ * momentum_[i] + value;
        weights_[i] -= outer_learning_rate_ * (value + outer_momentum_ * momentum_[i]);
        break;
      case messages::ContributionKind::kWeights:
      case messages::ContributionKind::kInitialWeights:
        weights_[i] = value;
        break;
    }
  }
}

}  // namespace lodestar::trainer
