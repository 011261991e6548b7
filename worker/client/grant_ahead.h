// GrantAhead: a request for the grant after a round whose contribution is still on its way. It
// leaves together with the contribution, so that the grant comes back with the acknowledgement and
// not a round trip after it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/runtime/ids.h"
#include "proto/cluster_service.grpc.pb.h"
#include "worker/client/call_tracer.h"

namespace lodestar::client {

// Whether the answer is work in a round.
bool HasRound(const v1::Grant& grant);

class GrantAhead {
 public:
  // Asks at once, on a thread of its own, and again as long as the answer is that the coordinator
  // waits. `request` has a report. `life_secret`: see RegisterReply; empty: none is asked for.
  // `timeout`: of one request. `tracer` outlives it.
  GrantAhead(std::shared_ptr<v1::ClusterService::Stub> stub, v1::GrantRequest request,
             std::string life_secret, absl::Duration timeout, CallTracer* tracer);
  // Cancels.
  ~GrantAhead();

  // That the report is of.
  Round round() const { return Round(request_.report().round()); }
  // From any thread: no grant comes any more.
  void Cancel() ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks for `patience` at most. None: it has not come, or an error; NextGrant with the same
  // report tells which.
  std::optional<v1::Grant> Await(absl::Duration patience) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<v1::ClusterService::Stub> stub_;
  const v1::GrantRequest request_;
  const std::string life_secret_;
  const absl::Duration timeout_;
  CallTracer* const tracer_;

  absl::Mutex mutex_;
  grpc::ClientContext* call_in_progress_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;  // whatever has come of it
  std::optional<v1::Grant> grant_ ABSL_GUARDED_BY(mutex_);
  std::thread asker_;
};

}  // namespace lodestar::client
