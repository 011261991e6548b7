#include "server/rpc/parameter_rpc.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_mapping.h"
#include "server/rpc/parameter_pull.h"
#include "server/rpc/parameter_push.h"

namespace lodestar {
namespace {

constexpr int kMaxCallsAskedFor = 1 << 16;

}  // namespace

ParameterRpc::ParameterRpc(ShardProvider shards, Executor* executor, bool share_memory,
                           uint64_t export_key)
    : shards_(std::move(shards)),
      executor_(executor),
      traffic_(std::make_shared<TrafficCounters>()),
      regions_(std::make_shared<SharedMemoryRegions>(share_memory)),
      calls_(std::make_shared<BulkCalls>()),
      quota_(std::make_shared<StreamQuota>(StreamQuota::Config())),
      export_key_(export_key) {}

ParameterRpc::~ParameterRpc() = default;

BulkTraffic ParameterRpc::traffic() const {
  return {traffic_->bytes_received.load(std::memory_order_relaxed),
          traffic_->bytes_sent.load(std::memory_order_relaxed)};
}

StreamGuard ParameterRpc::GuardOf(const grpc::CallbackServerContext& context) const {
  return {quota_, export_key_, LifeClaim::Of(context)};
}

grpc::ServerReadReactor<grpc::ByteBuffer>* ParameterRpc::Push(grpc::CallbackServerContext* context,
                                                              grpc::ByteBuffer* reply) {
  return PushStream::Start(shards_(), executor_, traffic_, regions_, calls_->Begin(*context),
                           GuardOf(*context), reply);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ParameterRpc::Pull(grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request) {
  return PullStream::Start(shards_(), executor_, traffic_, regions_, calls_->Begin(*context),
                           GuardOf(*context), *request);
}

grpc::ServerBidiReactor<v1::SharedMemoryRequest, v1::SharedMemoryReply>* ParameterRpc::ShareMemory(
    grpc::CallbackServerContext* context) {
  return SharedMemoryStream::Start(
      regions_, [shards = shards_, guard = GuardOf(*context)](const WorkerLife& life) {
        const absl::StatusOr<std::shared_ptr<ParameterShard>> shard = shards();
        return shard.ok() ? guard.CheckLife(**shard, life) : shard.status();
      });
}

grpc::ServerUnaryReactor* ParameterRpc::DescribeCalls(grpc::CallbackServerContext* context,
                                                      const v1::DescribeCallsRequest* request,
                                                      v1::DescribeCallsReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (request->calls_size() > kMaxCallsAskedFor) {
    reactor->Finish(ToGrpcStatus(absl::InvalidArgumentError(
        absl::StrCat(request->calls_size(), " calls are asked for; at most ", kMaxCallsAskedFor))));
    return reactor;
  }
  for (const uint64_t call : request->calls()) *reply->add_calls() = calls_->StateOf(call);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace lodestar
