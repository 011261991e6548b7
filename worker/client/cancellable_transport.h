// SPDX-License-Identifier: Apache-2.0

// CancellableTransport is a ParameterTransport whose sessions can all be ended at once, from any
// thread. This is used when the lease is lost or the worker is told to stop, so that no thread
// continues to wait for a server.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "worker/client/bulk_transport.h"

namespace lodestar::client {

class CancellableTransport final : public ParameterTransport {
 public:
  explicit CancellableTransport(std::unique_ptr<ParameterTransport> inner)
      : inner_(std::move(inner)) {}

  std::unique_ptr<PushSession> StartPush(const ContributionHeader& header) override;
  std::unique_ptr<PullSession> StartPull(PullSpec spec, BucketCallback on_bucket) override;
  std::unique_ptr<PullSession> StartTrial() override;
  bool ReachesDevice(uint32_t bucket) override { return inner_->ReachesDevice(bucket); }
  uint64_t bytes_pushed() const override { return inner_->bytes_pushed(); }
  uint64_t bytes_pulled() const override { return inner_->bytes_pulled(); }
  messages::PathFacts path() const override { return inner_->path(); }
  std::optional<messages::Standstill> standstill() const override { return inner_->standstill(); }
  void MoveTo(const std::vector<std::string>& addresses) override { inner_->MoveTo(addresses); }

  // Ends all present and later sessions with Cancelled. Thread-safe.
  void Cancel();

 private:
  class WatchedPush;
  class WatchedPull;

  // Adds the session to `sessions`, and cancels it at once if Cancel() was called before.
  template <typename Session>
  void Watch(absl::flat_hash_set<Session*>& sessions, Session* session);
  template <typename Session>
  void Forget(absl::flat_hash_set<Session*>& sessions, Session* session);

  const std::unique_ptr<ParameterTransport> inner_;
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_set<PushSession*> pushes_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<PullSession*> pulls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::client
