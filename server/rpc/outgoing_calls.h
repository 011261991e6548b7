// SPDX-License-Identifier: Apache-2.0

// OutgoingCalls holds the calls to other servers that are under way. So an owner that stops can end
// them at once, instead of waiting for an answer or a deadline. The class is thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lodestar::rpc {

class OutgoingCalls {
 public:
  // Adds a call. Returns false if calls are cancelled: then the call must not be made. Otherwise
  // End() must follow while the context exists.
  bool Begin(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mutex_);
  void End(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the calls under way with CANCELLED.
  void Interrupt() ABSL_LOCKS_EXCLUDED(mutex_);
  // Does the same as Interrupt(), and lets no other call begin.
  void CancelAll() ABSL_LOCKS_EXCLUDED(mutex_);
  bool are_cancelled() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  bool are_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::rpc
