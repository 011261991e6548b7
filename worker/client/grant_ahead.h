// SPDX-License-Identifier: Apache-2.0

// GrantAhead asks for the next grant while the contribution to the present round is still on its
// way. The grant then arrives together with the acknowledgement, instead of one round trip later.
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

// Returns true if the grant tells the worker to train or to evaluate in a round.
bool HasRound(const v1::Grant& grant);

class GrantAhead {
 public:
  // Sends the request at once, on a thread of its own, and repeats it while the answer is kWait.
  // `request` must have a report. `life_secret` is that of RegisterReply; empty means that servers
  // use no secrets. `timeout` is for one request. `tracer` must outlive the object.
  GrantAhead(std::shared_ptr<v1::ClusterService::Stub> stub, v1::GrantRequest request,
             std::string life_secret, absl::Duration timeout, CallTracer* tracer);
  // Cancels the request.
  ~GrantAhead();

  // Returns the round of the report.
  Round round() const { return Round(request_.report().round()); }
  // Ends the request. Afterwards no grant comes any more. May be called from any thread.
  void Cancel() ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks for at most `patience`. Returns nullopt if the grant has not come, or after an error.
  // CoordinatorLink::NextGrant() with the same report then asks again.
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
  // True once the grant has come, or can no longer come.
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<v1::Grant> grant_ ABSL_GUARDED_BY(mutex_);
  std::thread asker_;
};

}  // namespace lodestar::client
