// SPDX-License-Identifier: Apache-2.0

#include "worker/client/shared_memory_link.h"

#include <algorithm>
#include <utility>

namespace lodestar::client {

SharedMemoryLink::SharedMemoryLink(Config config)
    : config_(std::move(config)), channel_(config_.channel) {
  Prepare();
}

SharedMemoryLink::~SharedMemoryLink() {
  std::vector<std::shared_ptr<SharedMemoryCall>> calls;
  {
    absl::MutexLock lock(&mutex_);
    calls.swap(ended_);
    if (current_ != nullptr) calls.push_back(std::move(current_));
  }
  for (const auto& call : calls) call->End();
  for (const auto& call : calls) call->AwaitDone();
}

void SharedMemoryLink::Prepare() {
  // `done` is declared first, so that its calls are destroyed after the lock is released.
  std::vector<std::shared_ptr<SharedMemoryCall>> done;
  absl::Status failure;
  {
    absl::MutexLock lock(&mutex_);
    failure = PrepareLocked(done);
  }
  if (!failure.ok() && config_.call.on_settled != nullptr) config_.call.on_settled(failure);
}

absl::Status SharedMemoryLink::PrepareLocked(std::vector<std::shared_ptr<SharedMemoryCall>>& done) {
  if (current_ != nullptr && current_->is_done()) {
    // Unavailable does not count as a refusal: the server was away and may come back.
    is_refused_ =
        !absl::IsUnavailable(current_->status()) && !absl::IsCancelled(current_->status());
    done.push_back(std::move(current_));
  }
  const auto first_done = std::partition(ended_.begin(), ended_.end(),
                                         [](const auto& call) { return !call->is_done(); });
  std::move(first_done, ended_.end(), std::back_inserter(done));
  ended_.erase(first_done, ended_.end());
  if (current_ != nullptr || is_refused_) return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<SharedMemoryCall>> call =
      SharedMemoryCall::Start(channel_, config_.call);
  if (call.ok()) {
    current_ = *std::move(call);
  } else {
    is_refused_ = true;
  }
  return call.status();
}

std::shared_ptr<SharedMemoryCall> SharedMemoryLink::Current() {
  absl::MutexLock lock(&mutex_);
  return current_ != nullptr && current_->is_open() ? current_ : nullptr;
}

void SharedMemoryLink::UseChannel(const std::shared_ptr<grpc::Channel>& channel) {
  std::shared_ptr<SharedMemoryCall> call;
  {
    absl::MutexLock lock(&mutex_);
    channel_ = channel;
    is_refused_ = false;
    call = current_;
  }
  if (call != nullptr) Abandon(call);
}

void SharedMemoryLink::Abandon(const std::shared_ptr<SharedMemoryCall>& call) {
  call->End();
  absl::MutexLock lock(&mutex_);
  if (current_ != call) return;
  ended_.push_back(std::move(current_));
  current_ = nullptr;
}

}  // namespace lodestar::client
