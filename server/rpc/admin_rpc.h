// AdminService (proto/status_service.proto): checkpoint, export and stop on request.
#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/executor.h"
#include "common/job_spec.h"
#include "proto/status_service.grpc.pb.h"
#include "server/fleet/shard_host.h"
#include "server/rpc/coordinator_strand.h"
#include "server/rpc/export_stream.h"

namespace lodestar {

class AdminRpc final : public v1::AdminService::CallbackService {
 public:
  // `strand` and `local` outlive the gRPC server.
  AdminRpc(JobSpec job, CoordinatorStrand* strand, const ShardHost* local);

  grpc::ServerUnaryReactor* Checkpoint(grpc::CallbackServerContext* context,
                                       const v1::CheckpointRequest* request,
                                       v1::CheckpointReply* reply) override;
  grpc::ServerWriteReactor<v1::ExportChunk>* Export(grpc::CallbackServerContext* context,
                                                    const v1::ExportRequest* request) override;
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context,
                                 const v1::StopRequest* request, v1::StopReply* reply) override;

 private:
  const JobSpec job_;
  CoordinatorStrand* const strand_;
  const ShardHost* const local_;
  ThreadPool exports_;  // blocks for the network; one export at a time, the next ones wait
};

}  // namespace lodestar
