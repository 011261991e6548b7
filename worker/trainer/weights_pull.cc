// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/weights_pull.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/runtime/check.h"
#include "common/runtime/remedy.h"
#include "common/runtime/status_macros.h"
#include "worker/trainer/retry.h"

namespace lodestar::trainer {

std::vector<uint32_t> AllBuckets(const messages::Registration& registration) {
  std::vector<uint32_t> all(registration.buckets().size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

WeightsPull::WeightsPull(const messages::Registration& registration, Round min_round,
                         std::vector<uint32_t> buckets, HostMirror* weights, ShadowReplica* shadow,
                         client::ParameterTransport* transport, Clock* clock,
                         process::TraceRecorder* trace)
    : registration_(registration),
      min_round_(min_round),
      buckets_(std::move(buckets)),
      weights_(weights),
      shadow_(shadow),
      transport_(transport),
      clock_(clock),
      trace_(trace),
      started_at_(clock->Now()),
      weights_free_(weights->BeginToDevice()),
      versions_(registration.buckets().size()),
      is_awaited_(registration.buckets().size(), false),
      arrived_on_device_(registration.buckets().size(), false),
      on_device_(registration.buckets().size(), false),
      exposed_(weights->device(), clock) {
  if (!weights_free_.ok()) {
    absl::MutexLock lock(&mutex_);
    failure_ = weights_free_.status();
    return;
  }
  puller_ = std::thread([this] { Run(); });
}

WeightsPull::~WeightsPull() { Cancel(); }

void WeightsPull::Cancel() {
  {
    absl::MutexLock lock(&mutex_);
    abandoned_ = true;
    if (session_ != nullptr) session_->Cancel();
  }
  if (puller_.joinable()) puller_.join();
  absl::MutexLock lock(&mutex_);
  failure_.Update(absl::CancelledError("the pull was cancelled"));
}

void WeightsPull::Run() {
  TransferRetry retry(clock_);
  while (true) {
    client::PullSpec spec = MissingBuckets();
    const bool goes_to_device =
        std::any_of(spec.targets.begin(), spec.targets.end(),
                    [](const client::PullTarget& target) { return target.device != nullptr; });
    if (goes_to_device) {
      const absl::Status free = AsFinal(weights_->Await(*weights_free_));
      if (!free.ok()) {
        absl::MutexLock lock(&mutex_);
        failure_ = free;
        return;
      }
    }
    const std::unique_ptr<client::PullSession> session = transport_->StartPull(
        std::move(spec), [this](const client::PulledBucket& pulled) { OnBucket(pulled); });
    {
      absl::MutexLock lock(&mutex_);
      session_ = session.get();
      if (abandoned_) session_->Cancel();
    }
    const absl::Status status = session->Wait();
    absl::MutexLock lock(&mutex_);
    session_ = nullptr;
    if (status.ok() || abandoned_) return;
    if (!retry.MayHelp(status)) {
      failure_ = status;
      return;
    }
    mutex_.Unlock();
    retry.BackOff(status, "pull");
    mutex_.Lock();
  }
}

client::PullSpec WeightsPull::MissingBuckets() {
  absl::MutexLock lock(&mutex_);
  client::PullSpec spec;
  spec.min_round = min_round_;
  if (shadow_ != nullptr) spec.encoding = shadow_->encoding();
  for (const uint32_t index : buckets_) {
    if (versions_[index].has_value()) continue;
    const params::Bucket& bucket = registration_.buckets()[index];
    float* const weights = weights_->data() + bucket.range.begin;
    spec.targets.push_back(
        shadow_ != nullptr
            ? shadow_->TargetOf(bucket, weights)
            : client::PullTarget{bucket.index, absl::MakeSpan(weights, bucket.range.size())});
    if (!MayGoToDevice(bucket)) continue;
    spec.targets.back().device = weights_;
    spec.targets.back().device_begin = HostMirror::ByteOf(bucket.range.begin);
  }
  return spec;
}

// If there is a shadow, the host must first decode the changes.
bool WeightsPull::MayGoToDevice(const params::Bucket& bucket) const {
  return shadow_ == nullptr && !weights_->is_shared() && transport_->ReachesDevice(bucket.index);
}

void WeightsPull::OnBucket(const client::PulledBucket& pulled) {
  const params::Bucket& bucket = registration_.buckets()[pulled.bucket];
  if (trace_ != nullptr) {
    // The span includes the time in which the server did not yet have this version.
    trace_->Add("pull", "pull", started_at_, clock_->Now(), {.bucket = pulled.bucket});
  }
  if (shadow_ != nullptr) {
    process::TraceSpan span(trace_, "pull", "decode", {.bucket = pulled.bucket});
    shadow_->Complete(bucket, pulled, weights_->data() + bucket.range.begin);
  }
  absl::MutexLock lock(&mutex_);
  versions_[pulled.bucket] = pulled.version;
  if (is_awaited_[pulled.bucket]) --num_awaited_;
  arrived_on_device_[pulled.bucket] = pulled.is_on_device;
}

std::vector<uint32_t> WeightsPull::BucketsToWaitFor(
    int block, absl::Span<const params::ElementRange> parts) const {
  std::vector<uint32_t> buckets;
  for (const uint32_t index : buckets_) {
    const params::Bucket& bucket = registration_.buckets()[index];
    if (bucket.block != block || on_device_[index]) continue;
    // Finds the first of the `parts` that ends after the bucket begins.
    const auto part = std::upper_bound(
        parts.begin(), parts.end(), bucket.range.begin,
        [](int64_t element, const params::ElementRange& range) { return element < range.end; });
    if (part != parts.end() && part->begin < bucket.range.end) buckets.push_back(index);
  }
  std::sort(buckets.begin(), buckets.end());
  return buckets;
}

absl::Status WeightsPull::Await(absl::Span<const uint32_t> buckets) {
  const auto is_settled = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return num_awaited_ == 0 || !failure_.ok();
  };
  bool waits = false;
  {
    absl::MutexLock lock(&mutex_);
    for (const uint32_t bucket : buckets) {
      if (is_awaited_[bucket] || versions_[bucket].has_value()) continue;
      is_awaited_[bucket] = true;
      ++num_awaited_;
    }
    waits = !is_settled();
  }
  if (waits) on_activity_("pull");
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&is_settled));
    if (num_awaited_ != 0) status = failure_;
  }
  if (waits) on_activity_("compute");
  return status;
}

absl::Status WeightsPull::WaitForBlock(int block) {
  return WaitForParts(block, {registration_.layout().block(block)});
}

absl::Status WeightsPull::WaitForParts(int block, absl::Span<const params::ElementRange> parts) {
  const std::vector<uint32_t> buckets = BucketsToWaitFor(block, parts);
  if (buckets.empty()) return absl::OkStatus();
  const absl::Time start = clock_->Now();
  exposed_.Begin();
  RETURN_IF_ERROR(Await(buckets));
  blocked_ += clock_->Now() - start;
  std::vector<params::ElementRange> on_host;
  {
    absl::MutexLock lock(&mutex_);
    for (const uint32_t index : buckets) {
      if (!arrived_on_device_[index]) on_host.push_back(registration_.buckets()[index].range);
    }
  }
  for (const params::ElementRange& range : on_host) weights_->ToDevice(range);
  for (const uint32_t index : buckets) {
    on_device_[index] = true;
    waited_.push_back(index);
  }
  exposed_.End();
  return absl::OkStatus();
}

absl::Status WeightsPull::WaitForAll() {
  for (int block = 0; block < registration_.layout().num_blocks(); ++block) {
    RETURN_IF_ERROR(WaitForBlock(block));
  }
  return absl::OkStatus();
}

Version WeightsPull::version(uint32_t bucket) {
  absl::MutexLock lock(&mutex_);
  LODESTAR_CHECK(versions_[bucket].has_value()) << "bucket " << bucket << " was not waited for";
  return *versions_[bucket];
}

std::vector<Version> WeightsPull::versions() {
  std::vector<Version> versions;
  for (const params::Bucket& bucket : registration_.buckets())
    versions.push_back(version(bucket.index));
  return versions;
}

}  // namespace lodestar::trainer
