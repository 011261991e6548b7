#include "worker/trainer/testing/local_parameter_server.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "common/check.h"
#include "common/initial_weights.h"
#include "common/layout.h"
#include "kernels/codec/codec.h"

namespace lodestar {

class LocalParameterServer::Push final : public PushSession {
 public:
  Push(LocalParameterServer* owner, const ContributionHeader& header)
      : owner_(owner),
        header_(header),
        contribution_(owner->weights_.size(), std::numeric_limits<float>::quiet_NaN()) {}
  void AddBucket(uint32_t bucket, Version base_version, absl::Span<const std::byte> data) override {
    LODESTAR_CHECK(is_duplicate() || base_version == owner_->version_)
        << "computed on version " << base_version;
    owner_->on_add_(bucket);
    const ElementRange range = owner_->registration_.buckets()[bucket].range;
    LODESTAR_CHECK(data.size() == static_cast<size_t>(EncodedBytes(header_.encoding, range.size())))
        << data.size() << " bytes of bucket " << bucket;
    CodecOf(header_.encoding).Decode(data.data(), range.size(), contribution_.data() + range.begin);
    owner_->pushed_[bucket].assign(data.begin(), data.end());
    ++num_buckets_;
  }
  absl::StatusOr<PushResult> Finish() override {
    const absl::Status failure = std::exchange(owner_->push_failure_, absl::OkStatus());
    if (!failure.ok() && !owner_->counts_before_failing_) return failure;
    PushResult result;
    if (is_duplicate()) {
      result.buckets_duplicate = num_buckets_;
    } else {
      owner_->Apply(header_, contribution_);
      result.buckets_counted = num_buckets_;
    }
    if (!failure.ok()) return failure;
    return result;
  }
  void Cancel() override {}

 private:
  // Every update is a round of this worker.
  bool is_duplicate() const { return header_.round.value() < owner_->version_.value(); }

  LocalParameterServer* const owner_;
  const ContributionHeader header_;
  std::vector<float> contribution_;
  int64_t num_buckets_ = 0;
};

class LocalParameterServer::Pull final : public PullSession {
 public:
  Pull(LocalParameterServer* owner, PullSpec spec, BucketCallback on_bucket)
      : owner_(owner), spec_(std::move(spec)), on_bucket_(std::move(on_bucket)) {}
  absl::Status Wait() override {
    owner_->on_pull_();
    for (const PullTarget& target : spec_.targets) {
      const auto begin =
          owner_->weights_.begin() + owner_->registration_.buckets()[target.bucket].range.begin;
      std::copy(begin, begin + target.destination.size(), target.destination.begin());
      on_bucket_({target.bucket, owner_->version_});
    }
    return absl::OkStatus();
  }
  void Cancel() override {}

 private:
  LocalParameterServer* const owner_;
  const PullSpec spec_;
  const BucketCallback on_bucket_;
};

LocalParameterServer::LocalParameterServer(const JobSpec& job, double learning_rate)
    : learning_rate_(static_cast<float>(learning_rate)) {
  registration_.job = job;
  auto map = std::make_shared<ClusterMap>();
  map->layout = *BuildLayout(job.model);
  const int64_t size = map->layout.num_elements();
  map->servers = {{0, "nowhere:1", {0, size}}};
  map->buckets = *PlanBuckets(map->layout, {{0, size}}, job.bucket_bytes);
  registration_.map = std::move(map);
  pushed_.resize(registration_.buckets().size());
  weights_.resize(size);
  FillInitialRange(registration_.layout(), job.seed, {0, size}, absl::MakeSpan(weights_));
}

std::unique_ptr<PushSession> LocalParameterServer::StartPush(const ContributionHeader& header) {
  return std::make_unique<Push>(this, header);
}

std::unique_ptr<PullSession> LocalParameterServer::StartPull(PullSpec spec,
                                                             BucketCallback on_bucket) {
  return std::make_unique<Pull>(this, std::move(spec), std::move(on_bucket));
}

void LocalParameterServer::Apply(const ContributionHeader& header,
                                 const std::vector<float>& contribution) {
  last_header_ = header;
  for (size_t i = 0; i < weights_.size(); ++i) {
    switch (header.kind) {
      case ContributionKind::kGradient:
        weights_[i] -= learning_rate_ * (header.scale * contribution[i]);
        break;
      case ContributionKind::kPseudoGradient:
        weights_[i] -= contribution[i];
        break;
      case ContributionKind::kWeights:
      case ContributionKind::kInitialWeights:
        weights_[i] = contribution[i];
        break;
    }
  }
  version_ = version_ + 1;
}

}  // namespace lodestar
