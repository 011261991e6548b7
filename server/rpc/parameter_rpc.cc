#include "server/rpc/parameter_rpc.h"

#include <utility>

#include "server/rpc/parameter_pull.h"
#include "server/rpc/parameter_push.h"

namespace lodestar {

ParameterRpc::ParameterRpc(ShardProvider shards, Executor* executor, bool share_memory)
    : shards_(std::move(shards)),
      executor_(executor),
      traffic_(std::make_shared<TrafficCounters>()),
      regions_(std::make_shared<SharedMemoryRegions>(share_memory)) {}

ParameterRpc::~ParameterRpc() = default;

BulkTraffic ParameterRpc::traffic() const {
  return {traffic_->bytes_received.load(std::memory_order_relaxed),
          traffic_->bytes_sent.load(std::memory_order_relaxed)};
}

grpc::ServerReadReactor<grpc::ByteBuffer>* ParameterRpc::Push(
    grpc::CallbackServerContext* /*context*/, grpc::ByteBuffer* reply) {
  return PushStream::Start(shards_(), executor_, traffic_, regions_, reply);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ParameterRpc::Pull(
    grpc::CallbackServerContext* /*context*/, const grpc::ByteBuffer* request) {
  return PullStream::Start(shards_(), executor_, traffic_, regions_, *request);
}

grpc::ServerBidiReactor<v1::SharedMemoryRequest, v1::SharedMemoryReply>* ParameterRpc::ShareMemory(
    grpc::CallbackServerContext* /*context*/) {
  return SharedMemoryStream::Start(regions_);
}

}  // namespace lodestar
