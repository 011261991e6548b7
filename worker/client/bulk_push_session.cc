// SPDX-License-Identifier: Apache-2.0

#include "worker/client/bulk_push_session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/messages/contribution.h"
#include "proto/convert.h"

namespace lodestar::client {
namespace {

wire::PushChunkHeader ChunkHeader(const BulkGrpcTransportConfig& config,
                                  const ContributionHeader& contribution) {
  wire::PushChunkHeader header;
  header.worker = config.worker;
  header.incarnation = config.incarnation;
  header.round = contribution.round;
  header.encoding = wire::ToProto(contribution.encoding.kind());
  header.kind = wire::ToProto(contribution.kind);
  header.scale = contribution.scale;
  header.num_samples = contribution.num_samples;
  header.weight = contribution.weight;
  header.state_vector = contribution.state_vector;
  return header;
}

// Returns 0 for numbers that a server must not send: NaN and negative numbers.
absl::Duration FromWireSeconds(float seconds) {
  return seconds > 0 ? absl::Seconds(seconds) : absl::ZeroDuration();
}

}  // namespace

BulkPushSession::BulkPushSession(BulkConnections* connections, const ContributionHeader& header)
    : connections_(connections),
      encoding_(header.encoding),
      header_(ChunkHeader(connections->config(), header)),
      learning_rates_(header.learning_rates),
      memory_released_(std::make_shared<absl::Notification>()),
      memory_owner_(static_cast<const void*>(nullptr),
                    [released = memory_released_](const void*) { released->Notify(); }),
      calls_(connections->num_streams()) {
  connections->PrepareSharedMemory();
}

BulkPushSession::~BulkPushSession() {
  if (finished_) return;
  Cancel();
  Finish().IgnoreError();
}

void BulkPushSession::AddBucket(uint32_t bucket, Version base_version,
                                absl::Span<const std::byte> data) {
  const bool is_skipped = header_.num_samples == messages::kSkippedSamples && data.empty();
  const absl::StatusOr<int> stream = is_skipped
                                         ? connections_->StreamOf(bucket)
                                         : connections_->StreamOf(bucket, encoding_, data.size());
  const std::shared_ptr<BulkPushCall> call = CallFor(stream);
  if (call != nullptr) call->AddBucket(bucket, base_version, data);
}

void BulkPushSession::AddDeviceBucket(uint32_t bucket, Version base_version,
                                      const DevicePayload& payload) {
  const std::shared_ptr<BulkPushCall> call =
      CallFor(connections_->StreamOf(bucket, encoding_, static_cast<size_t>(payload.bytes)));
  if (call != nullptr) call->AddDeviceBucket(bucket, base_version, payload);
}

std::shared_ptr<BulkPushCall> BulkPushSession::CallFor(const absl::StatusOr<int>& stream) {
  absl::MutexLock lock(&mutex_);
  if (!stream.ok()) FailLocked(stream.status());
  if (!status_.ok()) return nullptr;
  ++num_added_;
  std::shared_ptr<BulkPushCall>& slot = calls_[*stream];
  if (slot == nullptr) {
    ++num_open_;
    slot = BulkPushCall::Start(
        connections_, *stream, header_, learning_rates_, encoding_, memory_owner_,
        [this](const absl::StatusOr<v1::PushReply>& reply) { OnCallDone(reply); });
  }
  return slot;
}

absl::StatusOr<PushResult> BulkPushSession::Finish() {
  finished_ = true;
  std::vector<std::shared_ptr<BulkPushCall>> calls;
  {
    absl::MutexLock lock(&mutex_);
    calls = calls_;
  }
  for (const auto& call : calls) {
    if (call != nullptr) call->EndOfBuckets();
  }
  calls.clear();
  {
    absl::MutexLock lock(&mutex_);
    const auto all_done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_open_ == 0; };
    mutex_.Await(absl::Condition(&all_done));
    calls.swap(calls_);
  }
  // Slices of the caller's memory may still be held by gRPC until the calls are destroyed.
  calls.clear();
  memory_owner_.reset();
  memory_released_->WaitForNotification();

  absl::MutexLock lock(&mutex_);
  if (!status_.ok()) return status_;
  connections_->MeasureSent();
  const int64_t answered = result_.buckets_counted + result_.buckets_duplicate +
                           static_cast<int64_t>(result_.late.size());
  if (answered != num_added_) {
    return absl::DataLossError(absl::StrCat("push: the servers acknowledged ", answered,
                                            " buckets, but ", num_added_,
                                            " were sent; use the same release on both sides"));
  }
  return result_;
}

void BulkPushSession::Cancel() {
  absl::MutexLock lock(&mutex_);
  FailLocked(absl::CancelledError("push: cancelled by this worker"));
}

int64_t BulkPushSession::bytes_unsent() {
  absl::MutexLock lock(&mutex_);
  int64_t bytes = 0;
  for (const auto& call : calls_) {
    if (call != nullptr) bytes += static_cast<int64_t>(call->bytes_unsent());
  }
  return bytes;
}

void BulkPushSession::FailLocked(const absl::Status& status) {
  if (!status_.ok()) return;
  status_ = status;
  for (const auto& call : calls_) {
    if (call != nullptr) call->Cancel();
  }
}

void BulkPushSession::OnCallDone(const absl::StatusOr<v1::PushReply>& reply) {
  absl::MutexLock lock(&mutex_);
  if (reply.ok()) {
    result_.buckets_counted += reply->buckets_counted();
    result_.buckets_duplicate += reply->buckets_duplicate();
    result_.late.insert(result_.late.end(), reply->late_buckets().begin(),
                        reply->late_buckets().end());
    result_.wait = {.held = FromWireSeconds(reply->held_seconds()),
                    .since_held = FromWireSeconds(reply->seconds_since_held()),
                    .since_received = FromWireSeconds(reply->seconds_since_received())};
  } else {
    FailLocked(reply.status());
  }
  --num_open_;
}

}  // namespace lodestar::client
