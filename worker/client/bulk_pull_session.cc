// SPDX-License-Identifier: Apache-2.0

#include "worker/client/bulk_pull_session.h"

#include <utility>

#include "common/runtime/clock.h"

namespace lodestar::client {

BulkPullSession::BulkPullSession(BulkConnections* connections, PullSpec spec,
                                 ParameterTransport::BucketCallback on_bucket)
    : connections_(connections), on_bucket_(std::move(on_bucket)) {
  connections->PrepareSharedMemory();
  StartCalls(spec);
}

BulkPullSession::BulkPullSession(BulkConnections* connections) : connections_(connections) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [stream, bucket] : connections->TrialBuckets()) {
    std::vector<float>& memory = tried_.emplace_back(bucket->range.size());
    // A pull of round 0 is answered at once, also by servers that do not know this worker yet.
    StartCallLocked(stream, BulkPullCall::Path::kConnection,
                    {Round(0), {{bucket->index, absl::MakeSpan(memory)}}, params::Encoding::kFp32});
  }
}

BulkPullSession::~BulkPullSession() {
  Cancel();
  Wait().IgnoreError();
}

void BulkPullSession::StartCalls(const PullSpec& spec) {
  std::vector<std::vector<PullTarget>> targets(connections_->num_streams());
  absl::MutexLock lock(&mutex_);
  for (const PullTarget& target : spec.targets) {
    const absl::StatusOr<int> stream = connections_->StreamOf(
        target.bucket, params::Encoding::kFp32, BytesOf(target.destination).size());
    if (!stream.ok()) return FailLocked(stream.status());
    targets[*stream].push_back(target);
  }
  for (int stream = 0; stream < connections_->num_streams(); ++stream) {
    if (targets[stream].empty()) continue;
    StartCallLocked(stream, BulkPullCall::Path::kBest,
                    {spec.min_round, std::move(targets[stream]), spec.encoding, spec.state_vector});
  }
}

void BulkPullSession::StartCallLocked(int stream, BulkPullCall::Path path, PullSpec spec) {
  ++num_open_;
  calls_.push_back(
      BulkPullCall::Start(connections_, stream, path, std::move(spec),
                          {.arrived = [this](const PulledBucket& bucket) { OnArrived(bucket); },
                           .received = [this](size_t bytes) { OnReceived(bytes); },
                           .done = [this](const absl::Status& status) { OnPartDone(status); }}));
}

absl::Status BulkPullSession::Wait() {
  absl::MutexLock lock(&mutex_);
  const auto all_done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_open_ == 0; };
  mutex_.Await(absl::Condition(&all_done));
  if (status_.ok())
    connections_->MeasureReceived(bytes_after_first_, last_came_at_ - first_came_at_);
  // A second Wait() must not measure again.
  bytes_after_first_ = 0;
  return status_;
}

void BulkPullSession::OnReceived(size_t bytes) {
  const absl::Time now = Clock::Real().Now();
  absl::MutexLock lock(&mutex_);
  // The first chunk is not measured, because the server may have waited before it sent the chunk.
  if (first_came_at_ == absl::InfinitePast()) {
    first_came_at_ = now;
  } else {
    bytes_after_first_ += bytes;
  }
  last_came_at_ = now;
}

void BulkPullSession::Cancel() {
  absl::MutexLock lock(&mutex_);
  if (num_open_ > 0) FailLocked(absl::CancelledError("pull: cancelled by this worker"));
}

void BulkPullSession::OnArrived(const PulledBucket& bucket) {
  if (on_bucket_ == nullptr) return;
  {
    absl::MutexLock lock(&mutex_);
    ++num_open_;
  }
  connections_->executor().Schedule([this, bucket] {
    on_bucket_(bucket);
    OnPartDone(absl::OkStatus());
  });
}

void BulkPullSession::OnPartDone(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (!status.ok()) FailLocked(status);
  --num_open_;
}

void BulkPullSession::FailLocked(const absl::Status& status) {
  if (!status_.ok()) return;
  status_ = status;
  for (const std::shared_ptr<BulkPullCall>& call : calls_) call->Cancel();
}

}  // namespace lodestar::client
