// SPDX-License-Identifier: Apache-2.0

// BulkPushSession is the PushSession over gRPC. It has one BulkPushCall per data channel that
// carries some of the buckets.
#pragma once

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "worker/client/bulk_connections.h"
#include "worker/client/bulk_push_call.h"
#include "worker/client/bulk_transport.h"

namespace lodestar::client {

class BulkPushSession final : public PushSession {
 public:
  BulkPushSession(BulkConnections* connections, const ContributionHeader& header);
  ~BulkPushSession() override;

  void AddBucket(uint32_t bucket, Version base_version, absl::Span<const std::byte> data) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void AddDeviceBucket(uint32_t bucket, Version base_version, const DevicePayload& payload) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<PushResult> Finish() override ABSL_LOCKS_EXCLUDED(mutex_);
  void Cancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t bytes_unsent() override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Returns the call for a bucket of this stream. Null means that the session has failed. If
  // `stream` is an error, the session fails with that error.
  std::shared_ptr<BulkPushCall> CallFor(const absl::StatusOr<int>& stream)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCallDone(const absl::StatusOr<v1::PushReply>& reply) ABSL_LOCKS_EXCLUDED(mutex_);
  void FailLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  BulkConnections* const connections_;
  const params::Encoding encoding_;
  const wire::PushChunkHeader header_;
  const BlockRates learning_rates_;
  // Notified when no chunk refers to the caller's memory any more.
  const std::shared_ptr<absl::Notification> memory_released_;
  // The owner of the memory that the chunks use. Every chunk has a reference to it. Used only by
  // the thread of AddBucket() and Finish().
  std::shared_ptr<const void> memory_owner_;
  // Used only by the thread of AddBucket() and Finish().
  bool finished_ = false;

  absl::Mutex mutex_;
  // One entry per stream. Null means that the stream has no call.
  std::vector<std::shared_ptr<BulkPushCall>> calls_ ABSL_GUARDED_BY(mutex_);
  int num_open_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_added_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  PushResult result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::client
