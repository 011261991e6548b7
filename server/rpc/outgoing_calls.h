// OutgoingCalls has the calls to other servers that are under way. So an owner that stops ends them
// at once instead of waiting for an answer or a deadline. The class is thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lodestar::rpc {

class OutgoingCalls {
 public:
  // Returns false if the calls are cancelled: then do not call. Otherwise End() must follow while
  // the context lives.
  bool Begin(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mutex_);
  void End(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls under way end with CANCELLED.
  void Interrupt() ABSL_LOCKS_EXCLUDED(mutex_);
  // Does the same, and no other call begins.
  void CancelAll() ABSL_LOCKS_EXCLUDED(mutex_);
  bool are_cancelled() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  bool are_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::rpc
