// SPDX-License-Identifier: Apache-2.0

// AdminRpc serves AdminService (proto/status_service.proto): what operators ask of a job.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "common/logging/log_tail.h"
#include "common/runtime/executor.h"
#include "common/runtime/ids.h"
#include "proto/status_service.grpc.pb.h"
#include "proto/transport_security.h"
#include "server/coordinator/checkpoint_task.h"
#include "server/host/shard_host.h"
#include "server/limits/origin_places.h"
#include "server/limits/refusal_counts.h"
#include "server/rpc/coordinator_strand.h"
#include "server/rpc/export_stream.h"
#include "server/rpc/outgoing_calls.h"

namespace lodestar::rpc {

class AdminRpc final : public v1::AdminService::CallbackService {
 public:
  // The pointers are not owned, and their objects must outlive the gRPC server.
  struct Deps {
    CoordinatorStrand* strand = nullptr;
    const host::ShardHost* local = nullptr;
    wire::TransportSecurity security;  // for calls to other servers
    // Finds the checkpoint to go back to: see CheckpointKeeper::PrepareRollBack().
    std::function<absl::StatusOr<checkpoints::PublishedCheckpoint>(Round round)> prepare_roll_back;
    // Calls `done` with the outcome of --on_checkpoint: see CheckpointCommand::OnceDone().
    std::function<void(std::function<void(const absl::Status& outcome)> done)>
        once_checkpoint_command_done = [](const auto& done) { done(absl::OkStatus()); };
    // Returns the address of the dashboard, with the key for orders if they need one. The address
    // is empty if there is no dashboard.
    std::function<std::string()> dashboard_url;
    const logging::LogTail* log = nullptr;  // log of this process; null: there is none
    std::shared_ptr<limits::RefusalCounts> refusals = std::make_shared<limits::RefusalCounts>();
  };
  AdminRpc(job::JobSpec job, Deps deps);

  grpc::ServerUnaryReactor* Checkpoint(grpc::CallbackServerContext* context,
                                       const v1::CheckpointRequest* request,
                                       v1::CheckpointReply* reply) override;
  grpc::ServerWriteReactor<v1::ExportChunk>* Export(grpc::CallbackServerContext* context,
                                                    const v1::ExportRequest* request) override;
  grpc::ServerUnaryReactor* Pause(grpc::CallbackServerContext* context,
                                  const v1::PauseRequest* request, v1::PauseReply* reply) override;
  grpc::ServerUnaryReactor* Resume(grpc::CallbackServerContext* context,
                                   const v1::ResumeRequest* request,
                                   v1::ResumeReply* reply) override;
  grpc::ServerUnaryReactor* SetLearningRate(grpc::CallbackServerContext* context,
                                            const v1::SetLearningRateRequest* request,
                                            v1::SetLearningRateReply* reply) override;
  grpc::ServerUnaryReactor* Evict(grpc::CallbackServerContext* context,
                                  const v1::EvictRequest* request, v1::EvictReply* reply) override;
  grpc::ServerUnaryReactor* GetDashboard(grpc::CallbackServerContext* context,
                                         const v1::DashboardRequest* request,
                                         v1::DashboardReply* reply) override;
  grpc::ServerUnaryReactor* Readmit(grpc::CallbackServerContext* context,
                                    const v1::ReadmitRequest* request,
                                    v1::ReadmitReply* reply) override;
  grpc::ServerUnaryReactor* ReadLog(grpc::CallbackServerContext* context,
                                    const v1::ReadLogRequest* request,
                                    v1::ReadLogReply* reply) override;
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context,
                                 const v1::StopRequest* request, v1::StopReply* reply) override;
  grpc::ServerUnaryReactor* RollBack(grpc::CallbackServerContext* context,
                                     const v1::RollBackRequest* request,
                                     v1::RollBackReply* reply) override;

  // Ends the exports that wait for another server, because this server is stopping.
  void EndExports() { calls_.CancelAll(); }

 private:
  // Gives the order to the coordinator, and answers the call once the result is on disk.
  grpc::ServerUnaryReactor* Order(
      grpc::CallbackServerContext* context,
      absl::FunctionRef<absl::Status(coordinator::Coordinator&, absl::Time)> order);
  absl::Status WriteTo(ExportStream& stream);
  absl::Status FillLog(const v1::ReadLogRequest& request, v1::ReadLogReply& reply) const;
  // Checks that a roll-back is allowed now. Errors: InvalidArgument; those of
  // CoordinatorStrand::CheckCanOrder() and Coordinator::CheckMayRollBack().
  absl::Status CheckMayRollBack(const v1::RollBackRequest& request) const;

  const job::JobSpec job_;
  const Deps deps_;
  std::atomic<int> num_exports_ = 0;  // number of exports under way
  OutgoingCalls calls_;               // calls that exports make
  // Limits the answers with parts of the log that clients have not read yet. Each such answer may
  // take a mebibyte.
  limits::OriginPlaces log_answers_{{.in_all = 32, .of_origin = 8}};
  ThreadPool disk_{1, "rollback"};
  ThreadPool exports_;  // one thread per export, because exports block for the network
};

}  // namespace lodestar::rpc
