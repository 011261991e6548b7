// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/outgoing_calls.h"

namespace lodestar::rpc {

bool OutgoingCalls::Begin(grpc::ClientContext* context) {
  absl::MutexLock lock(&mutex_);
  if (!are_cancelled_) calls_.insert(context);
  return !are_cancelled_;
}

void OutgoingCalls::End(grpc::ClientContext* context) {
  absl::MutexLock lock(&mutex_);
  calls_.erase(context);
}

void OutgoingCalls::Interrupt() {
  absl::MutexLock lock(&mutex_);
  for (grpc::ClientContext* call : calls_) call->TryCancel();
}

void OutgoingCalls::CancelAll() {
  {
    absl::MutexLock lock(&mutex_);
    are_cancelled_ = true;
  }
  Interrupt();
}

bool OutgoingCalls::are_cancelled() const {
  absl::MutexLock lock(&mutex_);
  return are_cancelled_;
}

}  // namespace lodestar::rpc
