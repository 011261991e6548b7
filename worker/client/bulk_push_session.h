// PushSession over gRPC: one BulkPushCall per data channel that has something to carry.
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
  // The call that a bucket is added to; null: the session has failed, for instance with the error
  // that `stream` is.
  std::shared_ptr<BulkPushCall> CallFor(const absl::StatusOr<int>& stream)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCallDone(const absl::StatusOr<v1::PushReply>& reply) ABSL_LOCKS_EXCLUDED(mutex_);
  void FailLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  BulkConnections* const connections_;
  const Encoding encoding_;
  const wire::PushChunkHeader header_;
  // Held by every chunk; its end tells that no memory is referred to any more.
  const std::shared_ptr<absl::Notification> memory_released_;
  std::shared_ptr<const void> memory_owner_;  // used by the thread of AddBucket() and Finish()
  bool finished_ = false;                     // by the same thread

  absl::Mutex mutex_;
  std::vector<std::shared_ptr<BulkPushCall>> calls_ ABSL_GUARDED_BY(mutex_);  // by stream, or null
  int num_open_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_added_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  PushResult result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::client
