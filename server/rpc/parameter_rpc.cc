#include "server/rpc/parameter_rpc.h"

#include <utility>

#include "server/rpc/parameter_pull.h"
#include "server/rpc/parameter_push.h"

namespace lodestar {

ParameterRpc::ParameterRpc(ShardProvider shards, Executor* executor)
    : shards_(std::move(shards)),
      executor_(executor),
      traffic_(std::make_shared<TrafficCounters>()) {}

ParameterRpc::~ParameterRpc() = default;

BulkTraffic ParameterRpc::traffic() const {
  return {traffic_->bytes_received.load(std::memory_order_relaxed),
          traffic_->bytes_sent.load(std::memory_order_relaxed)};
}

grpc::ServerReadReactor<grpc::ByteBuffer>* ParameterRpc::Push(
    grpc::CallbackServerContext* /*context*/, grpc::ByteBuffer* reply) {
  return PushStream::Start(shards_(), executor_, traffic_, reply);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ParameterRpc::Pull(
    grpc::CallbackServerContext* /*context*/, const grpc::ByteBuffer* request) {
  return PullStream::Start(shards_(), executor_, traffic_, *request);
}

}  // namespace lodestar
