// StatusService (proto/status_service.proto): the status now, or once per interval.
#pragma once

#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "proto/status_service.grpc.pb.h"

namespace lodestar {

class StatusWatch;

class StatusRpc final : public v1::StatusService::CallbackService {
 public:
  // Called from any thread; must not block for long.
  using StatusReader = std::function<v1::ClusterStatus()>;

  explicit StatusRpc(StatusReader read) : read_(std::move(read)) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::ClusterStatus* reply) override;
  grpc::ServerWriteReactor<v1::ClusterStatus>* WatchStatus(
      grpc::CallbackServerContext* context, const v1::WatchStatusRequest* request) override;

  // Ends all watches: with OK if the job is over, else with UNAVAILABLE, as later ones. Waits for
  // what they read now; they read nothing afterwards.
  void Stop(bool is_job_over) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class StatusWatch;
  void Forget(StatusWatch* watch) ABSL_LOCKS_EXCLUDED(mutex_);

  const StatusReader read_;
  absl::Mutex mutex_;
  absl::flat_hash_set<StatusWatch*> watches_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar
