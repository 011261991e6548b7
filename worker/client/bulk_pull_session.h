// SPDX-License-Identifier: Apache-2.0

// BulkPullSession is the PullSession over gRPC. It has one BulkPullCall per data channel that
// carries some of the buckets.
#pragma once

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "worker/client/bulk_connections.h"
#include "worker/client/bulk_pull_call.h"
#include "worker/client/bulk_transport.h"

namespace lodestar::client {

class BulkPullSession final : public PullSession {
 public:
  BulkPullSession(BulkConnections* connections, PullSpec spec,
                  ParameterTransport::BucketCallback on_bucket);
  // Tests every data channel by pulling one bucket through its connection.
  explicit BulkPullSession(BulkConnections* connections);
  ~BulkPullSession() override;

  absl::Status Wait() override ABSL_LOCKS_EXCLUDED(mutex_);
  void Cancel() override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void StartCalls(const PullSpec& spec) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnArrived(const PulledBucket& bucket) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnReceived(size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void StartCallLocked(int stream, BulkPullCall::Path path, PullSpec spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Called when a call has ended or a callback has returned. Wait() waits for all of them.
  void OnPartDone(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void FailLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  BulkConnections* const connections_;
  const ParameterTransport::BucketCallback on_bucket_;
  // Destinations of the buckets that StartTrial() pulls.
  std::vector<std::vector<float>> tried_;

  absl::Mutex mutex_;
  std::vector<std::shared_ptr<BulkPullCall>> calls_ ABSL_GUARDED_BY(mutex_);
  int num_open_ ABSL_GUARDED_BY(mutex_) = 0;  // Calls and callbacks that have not ended.
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  // Times at which the first and the last chunk of all calls arrived, for the path meter.
  absl::Time first_came_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Time last_came_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  uint64_t bytes_after_first_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lodestar::client
