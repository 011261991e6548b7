// SPDX-License-Identifier: Apache-2.0

// ReplicaRpc serves ReplicaService: a ReplicaStore for servers on other machines.
#pragma once

#include <grpcpp/grpcpp.h>

#include "proto/replica_service.grpc.pb.h"
#include "server/durability/replica/replica_store.h"

namespace lodestar::rpc {

// Every call blocks a gRPC thread for the disk. That is acceptable: there are few calls per server,
// and the process does nothing else.
class ReplicaRpc final : public v1::ReplicaService::Service {
 public:
  // `store` must outlive the service.
  explicit ReplicaRpc(replica::ReplicaStore* store) : store_(store) {}

  grpc::Status BeginTerm(grpc::ServerContext* context, const v1::BeginTermRequest* request,
                         v1::BeginTermReply* reply) override;
  grpc::Status CheckTerm(grpc::ServerContext* context, const v1::CheckTermRequest* request,
                         v1::CheckTermReply* reply) override;
  grpc::Status ListFiles(grpc::ServerContext* context, const v1::ListFilesRequest* request,
                         grpc::ServerWriter<v1::ListFilesReply>* replies) override;
  grpc::Status ReadFile(grpc::ServerContext* context, const v1::ReadFileRequest* request,
                        grpc::ServerWriter<v1::ReadFileReply>* replies) override;
  grpc::Status Mirror(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::MirrorReply, v1::MirrorRequest>* stream) override;

 private:
  replica::ReplicaStore* const store_;
};

}  // namespace lodestar::rpc
