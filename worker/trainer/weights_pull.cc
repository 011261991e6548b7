#include "worker/trainer/weights_pull.h"

#include <numeric>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "worker/trainer/retry.h"

namespace lodestar {

std::vector<uint32_t> AllBuckets(const Registration& registration) {
  std::vector<uint32_t> all(registration.buckets().size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

WeightsPull::WeightsPull(const Registration& registration, Round min_round,
                         std::vector<uint32_t> buckets, HostMirror* weights, ShadowReplica* shadow,
                         ParameterTransport* transport, Clock* clock, TraceRecorder* trace)
    : registration_(registration),
      min_round_(min_round),
      buckets_(std::move(buckets)),
      weights_(weights),
      shadow_(shadow),
      transport_(transport),
      clock_(clock),
      trace_(trace),
      started_at_(clock->Now()),
      versions_(registration.buckets().size()),
      missing_by_block_(registration.layout().num_blocks(), 0),
      on_device_(registration.layout().num_blocks(), false) {
  for (const uint32_t bucket : buckets_) ++missing_by_block_[registration.buckets()[bucket].block];
  const absl::Status ready = weights_->BeginToDevice();
  if (!ready.ok()) {
    absl::MutexLock lock(&mutex_);
    failure_ = ready;
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
  failure_.Update(absl::CancelledError("the pull was given up"));
}

void WeightsPull::Run() {
  TransferRetry retry(clock_);
  while (true) {
    const std::unique_ptr<PullSession> session = transport_->StartPull(
        MissingBuckets(), [this](const PulledBucket& pulled) { OnBucket(pulled); });
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

PullSpec WeightsPull::MissingBuckets() {
  absl::MutexLock lock(&mutex_);
  PullSpec spec;
  spec.min_round = min_round_;
  if (shadow_ != nullptr) spec.encoding = shadow_->encoding();
  // Buckets are in order of the parameter space, which is the order of forward.
  for (const uint32_t index : buckets_) {
    if (versions_[index].has_value()) continue;
    const Bucket& bucket = registration_.buckets()[index];
    float* const weights = weights_->data() + bucket.range.begin;
    spec.targets.push_back(
        shadow_ != nullptr
            ? shadow_->TargetOf(bucket, weights)
            : PullTarget{bucket.index, absl::MakeSpan(weights, bucket.range.size())});
  }
  return spec;
}

void WeightsPull::OnBucket(const PulledBucket& pulled) {
  const Bucket& bucket = registration_.buckets()[pulled.bucket];
  if (trace_ != nullptr) {
    // With the time that the server took to have this version.
    trace_->Add("pull", "pull", started_at_, clock_->Now(), {.bucket = pulled.bucket});
  }
  if (shadow_ != nullptr) {
    TraceSpan span(trace_, "pull", "decode", {.bucket = pulled.bucket});
    shadow_->Complete(bucket, pulled, weights_->data() + bucket.range.begin);
  }
  absl::MutexLock lock(&mutex_);
  versions_[pulled.bucket] = pulled.version;
  --missing_by_block_[bucket.block];
}

bool WeightsPull::IsSettled(int block) const {
  return missing_by_block_[block] == 0 || !failure_.ok();
}

void WeightsPull::AwaitSettled(int block) {
  const auto is_settled = [this, block]()
                              ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return IsSettled(block); };
  {
    absl::MutexLock lock(&mutex_);
    if (is_settled()) return;
  }
  on_activity_("pull");
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&is_settled));
  }
  on_activity_("compute");
}

absl::Status WeightsPull::WaitForBlock(int block) {
  if (on_device_[block]) return absl::OkStatus();
  const absl::Time start = clock_->Now();
  AwaitSettled(block);
  {
    absl::MutexLock lock(&mutex_);
    if (missing_by_block_[block] != 0) return failure_;
  }
  blocked_ += clock_->Now() - start;
  for (const uint32_t index : buckets_) {
    const Bucket& bucket = registration_.buckets()[index];
    if (bucket.block == block) weights_->ToDevice(bucket.range);
  }
  on_device_[block] = true;
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
  for (const Bucket& bucket : registration_.buckets()) versions.push_back(version(bucket.index));
  return versions;
}

}  // namespace lodestar
