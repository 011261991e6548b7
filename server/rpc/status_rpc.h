// SPDX-License-Identifier: Apache-2.0

// StatusRpc serves StatusService (proto/status_service.proto): the status now, or once per
// interval.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/history/run_history.h"
#include "common/security/identity.h"
#include "proto/status_service.grpc.pb.h"
#include "server/limits/origin_places.h"
#include "server/limits/refusal_counts.h"

namespace lodestar::rpc {

class StatusWatch;

class StatusRpc final : public v1::StatusService::CallbackService {
 public:
  // Returns the status. Called from any thread. Must not block for long.
  using StatusReader = std::function<v1::ClusterStatus()>;
  using HistoryReader = std::function<history::RunHistory()>;
  // Checks that the caller of a watch may still read the status. Called before each answer, from
  // any thread.
  using CallerCheck = std::function<absl::Status(const security::Identity& caller)>;

  // `check` may be null, which means that every caller may read the status.
  StatusRpc(
      StatusReader read, HistoryReader read_history,
      std::shared_ptr<limits::RefusalCounts> refusals = std::make_shared<limits::RefusalCounts>(),
      CallerCheck check = nullptr)
      : read_(std::move(read)),
        read_history_(std::move(read_history)),
        refusals_(std::move(refusals)),
        check_(std::move(check)) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::ClusterStatus* reply) override;
  grpc::ServerUnaryReactor* GetHistory(grpc::CallbackServerContext* context,
                                       const v1::HistoryRequest* request,
                                       v1::HistoryReply* reply) override;
  grpc::ServerWriteReactor<v1::ClusterStatus>* WatchStatus(
      grpc::CallbackServerContext* context, const v1::WatchStatusRequest* request) override;

  // Ends all watches: with OK if the job is over, else with UNAVAILABLE. Watches that begin later
  // end in the same way. Blocks until no call reads the status any more.
  void Stop(bool is_job_over) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class StatusWatch;
  // If answers_ has a free place, calls `fill`, which sets the reply, and finishes the call.
  // Otherwise refuses the call.
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                   absl::FunctionRef<void()> fill);
  // Refuses a call for which there is no place, and counts the refusal.
  grpc::Status Refuse(const limits::OriginPlaces& places, absl::string_view what);
  void Forget(StatusWatch* watch) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status Check(const absl::StatusOr<std::optional<security::Identity>>& caller) const;

  const StatusReader read_;
  const HistoryReader read_history_;
  const std::shared_ptr<limits::RefusalCounts> refusals_;
  const CallerCheck check_;
  // answers_ limits the calls whose reply the client has not read yet. watching_ limits the
  // watches.
  limits::OriginPlaces answers_{{.in_all = 1024, .of_origin = 128}};
  limits::OriginPlaces watching_{{.in_all = 256, .of_origin = 64}};
  absl::Mutex mutex_;
  absl::flat_hash_set<StatusWatch*> watches_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar::rpc
