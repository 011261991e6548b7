// SPDX-License-Identifier: Apache-2.0

#include "worker/client/cancellable_transport.h"

#include <utility>

namespace lodestar::client {

template <typename Session>
void CancellableTransport::Watch(absl::flat_hash_set<Session*>& sessions, Session* session) {
  absl::MutexLock lock(&mutex_);
  sessions.insert(session);
  if (cancelled_) session->Cancel();
}

template <typename Session>
void CancellableTransport::Forget(absl::flat_hash_set<Session*>& sessions, Session* session) {
  absl::MutexLock lock(&mutex_);
  sessions.erase(session);
}

// A session is removed from the set before it is destroyed, so Cancel() never uses a destroyed one.
class CancellableTransport::WatchedPush final : public PushSession {
 public:
  WatchedPush(CancellableTransport* owner, std::unique_ptr<PushSession> inner)
      : owner_(owner), inner_(std::move(inner)) {
    owner_->Watch(owner_->pushes_, inner_.get());
  }
  ~WatchedPush() override { owner_->Forget(owner_->pushes_, inner_.get()); }
  void AddBucket(uint32_t bucket, Version base_version, absl::Span<const std::byte> data) override {
    inner_->AddBucket(bucket, base_version, data);
  }
  void AddDeviceBucket(uint32_t bucket, Version base_version,
                       const DevicePayload& payload) override {
    inner_->AddDeviceBucket(bucket, base_version, payload);
  }
  absl::StatusOr<PushResult> Finish() override { return inner_->Finish(); }
  void Cancel() override { inner_->Cancel(); }
  int64_t bytes_unsent() override { return inner_->bytes_unsent(); }

 private:
  CancellableTransport* const owner_;
  const std::unique_ptr<PushSession> inner_;
};

class CancellableTransport::WatchedPull final : public PullSession {
 public:
  WatchedPull(CancellableTransport* owner, std::unique_ptr<PullSession> inner)
      : owner_(owner), inner_(std::move(inner)) {
    owner_->Watch(owner_->pulls_, inner_.get());
  }
  ~WatchedPull() override { owner_->Forget(owner_->pulls_, inner_.get()); }
  absl::Status Wait() override { return inner_->Wait(); }
  void Cancel() override { inner_->Cancel(); }

 private:
  CancellableTransport* const owner_;
  const std::unique_ptr<PullSession> inner_;
};

std::unique_ptr<PushSession> CancellableTransport::StartPush(const ContributionHeader& header) {
  return std::make_unique<WatchedPush>(this, inner_->StartPush(header));
}

std::unique_ptr<PullSession> CancellableTransport::StartPull(PullSpec spec,
                                                             BucketCallback on_bucket) {
  return std::make_unique<WatchedPull>(this,
                                       inner_->StartPull(std::move(spec), std::move(on_bucket)));
}

std::unique_ptr<PullSession> CancellableTransport::StartTrial() {
  return std::make_unique<WatchedPull>(this, inner_->StartTrial());
}

void CancellableTransport::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  for (PushSession* push : pushes_) push->Cancel();
  for (PullSession* pull : pulls_) pull->Cancel();
}

}  // namespace lodestar::client
