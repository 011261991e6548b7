// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/parameter_rpc.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_mapping.h"
#include "server/membership/registration_limit.h"
#include "server/rpc/parameter_pull.h"
#include "server/rpc/parameter_push.h"

namespace lodestar::rpc {
namespace {

// Maximum number of calls in one DescribeCallsRequest, which is more than any client has open. The
// limit exists because an answer that the client does not read stays in memory.
constexpr int kMaxCallsAskedFor = 1 << 10;
// Maximum size of a DescribeCallsRequest. Each call takes 8 or 9 bytes. A larger request is not
// parsed.
constexpr size_t kMaxDescribeBytes = 9 * kMaxCallsAskedFor + 16;

absl::StatusOr<v1::DescribeCallsRequest> ParseDescribeCalls(grpc::ByteBuffer bytes) {
  if (bytes.Length() > kMaxDescribeBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the request has ", bytes.Length(), " bytes; allowed are at most ",
                     kMaxCallsAskedFor, " calls, and ", kMaxDescribeBytes, " bytes"));
  }
  v1::DescribeCallsRequest request;
  if (!grpc::SerializationTraits<v1::DescribeCallsRequest>::Deserialize(&bytes, &request).ok()) {
    return absl::InvalidArgumentError("the request is not a valid DescribeCallsRequest");
  }
  if (request.calls_size() <= kMaxCallsAskedFor) return request;
  return absl::InvalidArgumentError(absl::StrCat(
      request.calls_size(), " calls are asked for; allowed are at most ", kMaxCallsAskedFor));
}

}  // namespace

ParameterRpc::ParameterRpc(ShardProvider shards, Executor* executor, const Config& config)
    : shards_(std::move(shards)),
      executor_(executor),
      traffic_(std::make_shared<TrafficCounters>()),
      regions_(std::make_shared<SharedMemoryRegions>(config.share_memory, config.refusals)),
      connections_(std::make_shared<WorkerConnections>(config.state_of)),
      calls_(std::make_shared<BulkCalls>()),
      quota_(std::make_shared<StreamQuota>(config.streams)),
      strangers_(std::make_shared<limits::OriginPlaces>(limits::OriginPlaces::Config{
          .in_all = config.streams.strangers, .of_origin = config.streams.strangers / 4})),
      watch_(std::make_shared<StreamWatch>(config.message_timeout)),
      refusals_(config.refusals),
      export_key_(config.export_key),
      refusal_pause_(config.refusal_pause),
      connection_bytes_(config.connection_bytes) {}

ParameterRpc::~ParameterRpc() = default;

void ParameterRpc::EndStalled(absl::Time now) {
  refusals_->Count(limits::LimitReached::kSlowPeers, watch_->EndStalled(now));
}

BulkTraffic ParameterRpc::traffic() const {
  return {traffic_->bytes_received.load(std::memory_order_relaxed),
          traffic_->bytes_sent.load(std::memory_order_relaxed)};
}

StreamGuard ParameterRpc::GuardOf(const grpc::CallbackServerContext& context) const {
  StreamGuard guard = {quota_,
                       watch_,
                       refusals_,
                       export_key_,
                       LifeClaim::Of(context),
                       strangers_,
                       membership::PeerOrigin(context.peer()),
                       refusal_pause_};
  guard.on_life = [connections = connections_, peer = context.peer()](
                      const messages::WorkerLife& life) { connections->Note(life, peer); };
  if (connection_bytes_ != nullptr) {
    guard.connection_bytes = [bytes = connection_bytes_, peer = context.peer()] {
      return bytes(peer);
    };
  }
  return guard;
}

grpc::ServerReadReactor<grpc::ByteBuffer>* ParameterRpc::Push(grpc::CallbackServerContext* context,
                                                              grpc::ByteBuffer* reply) {
  return PushStream::Start(shards_(), traffic_, regions_, calls_->Begin(*context),
                           GuardOf(*context), reply);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ParameterRpc::Pull(grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request) {
  return PullStream::Start(shards_(), executor_, traffic_, regions_, calls_->Begin(*context),
                           GuardOf(*context), context, *request);
}

grpc::ServerBidiReactor<v1::SharedMemoryRequest, v1::SharedMemoryReply>* ParameterRpc::ShareMemory(
    grpc::CallbackServerContext* context) {
  return SharedMemoryStream::Start(
      regions_, watch_, processes_,
      [shards = shards_, guard = GuardOf(*context)](const messages::WorkerLife& life) {
        const absl::StatusOr<std::shared_ptr<shard::ParameterShard>> shard = shards();
        return shard.ok() ? guard.CheckLife(**shard, life) : shard.status();
      });
}

grpc::ServerUnaryReactor* ParameterRpc::DescribeCalls(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* reply) {
  const absl::StatusOr<v1::DescribeCallsRequest> calls = ParseDescribeCalls(*request);
  if (!calls.ok()) return new LateRefusal(calls.status(), refusal_pause_);
  v1::DescribeCallsReply states;
  for (const uint64_t call : calls->calls()) *states.add_calls() = calls_->StateOf(call);
  const grpc::Slice slice(states.SerializeAsString());
  *reply = grpc::ByteBuffer(&slice, 1);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace lodestar::rpc
