// AdminService (proto/status_service.proto): checkpoint, export and stop on request.
#pragma once

#include <atomic>

#include "absl/status/status.h"
#include "common/executor.h"
#include "common/job_spec.h"
#include "proto/status_service.grpc.pb.h"
#include "proto/transport_security.h"
#include "server/host/shard_host.h"
#include "server/rpc/coordinator_strand.h"
#include "server/rpc/export_stream.h"
#include "server/rpc/outgoing_calls.h"

namespace lodestar {

class AdminRpc final : public v1::AdminService::CallbackService {
 public:
  // `strand` and `local` outlive the gRPC server.
  AdminRpc(JobSpec job, CoordinatorStrand* strand, const ShardHost* local,
           TransportSecurity security);

  grpc::ServerUnaryReactor* Checkpoint(grpc::CallbackServerContext* context,
                                       const v1::CheckpointRequest* request,
                                       v1::CheckpointReply* reply) override;
  grpc::ServerWriteReactor<v1::ExportChunk>* Export(grpc::CallbackServerContext* context,
                                                    const v1::ExportRequest* request) override;
  grpc::ServerUnaryReactor* Readmit(grpc::CallbackServerContext* context,
                                    const v1::ReadmitRequest* request,
                                    v1::ReadmitReply* reply) override;
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context,
                                 const v1::StopRequest* request, v1::StopReply* reply) override;

  // Exports that wait for another server end at once, as the server is stopping.
  void EndExports() { calls_.CancelAll(); }

 private:
  absl::Status WriteTo(ExportStream& stream);

  const JobSpec job_;
  CoordinatorStrand* const strand_;
  const ShardHost* const local_;
  const TransportSecurity security_;  // of calls to other servers
  std::atomic<int> num_exports_ = 0;  // under way
  OutgoingCalls calls_;               // of exports
  ThreadPool exports_;                // one thread for each: they block for the network
};

}  // namespace lodestar
