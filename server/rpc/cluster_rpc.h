// ClusterService (proto/cluster_service.proto) over the coordinator: converts, calls, converts; and
// keeps NextGrant open until there is a grant, and Register while the servers load. Never blocks a
// gRPC thread.
#pragma once

#include <atomic>

#include "common/job_spec.h"
#include "proto/cluster_service.grpc.pb.h"
#include "server/rpc/commanded_shards.h"
#include "server/rpc/coordinator_strand.h"
#include "server/status/status_board.h"

namespace lodestar {

class ClusterRpc final : public v1::ClusterService::CallbackService {
 public:
  // Not owned; outlive the gRPC server.
  struct Deps {
    CoordinatorStrand* strand = nullptr;
    CommandedShards* shards = nullptr;
    StatusBoard* board = nullptr;
  };

  explicit ClusterRpc(const Deps& deps) : deps_(deps) {}

  // The server is about to stop: from now on workers and servers that would begin anew get
  // Unavailable.
  void BeginDrain() { is_draining_ = true; }

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterReply* reply) override;
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request, v1::JoinReply* reply) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatReply* reply) override;
  grpc::ServerUnaryReactor* NextGrant(grpc::CallbackServerContext* context,
                                      const v1::GrantRequest* request, v1::Grant* reply) override;
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest* request, v1::LeaveReply* reply) override;

  grpc::ServerWriteReactor<v1::ShardCommand>* AttachShard(
      grpc::CallbackServerContext* context, const v1::AttachShardRequest* request) override;
  grpc::ServerUnaryReactor* ReportShard(grpc::CallbackServerContext* context,
                                        const v1::ShardReport* request,
                                        v1::ShardReportReply* reply) override;

 private:
  absl::Status CheckNotDraining() const;
  // Whether the caller may speak for this worker. Errors: PermissionDenied, Unauthenticated.
  absl::Status CheckSpeaksFor(const grpc::CallbackServerContext& context,
                              const WorkerLife& life) const;
  absl::Status DoAttach(const v1::AttachShardRequest& request,
                        const std::shared_ptr<ShardStream>& stream);
  void OnStreamDone(int shard, uint64_t instance_id, const ShardStream* stream);
  grpc::ServerUnaryReactor* AwaitLastCheckpoint(grpc::CallbackServerContext* context,
                                                const v1::ShardReport& report,
                                                v1::ShardReportReply* reply);

  const Deps deps_;
  std::atomic<bool> is_draining_ = false;
};

}  // namespace lodestar
