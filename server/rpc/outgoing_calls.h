// Calls to other servers that are under way, so that whoever stops ends them at once instead of
// waiting for an answer or a deadline. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lodestar {

class OutgoingCalls {
 public:
  // False if cancelled: then do not call. Else End() must follow while the context lives.
  bool Begin(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mutex_);
  void End(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls under way end with CANCELLED.
  void Interrupt() ABSL_LOCKS_EXCLUDED(mutex_);
  // The same, and no other begins.
  void CancelAll() ABSL_LOCKS_EXCLUDED(mutex_);
  bool are_cancelled() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  bool are_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar
