// SPDX-License-Identifier: Apache-2.0

// ParameterRpc serves ParameterService (proto/parameter_service.proto) with a ParameterShard. It
// converts messages and moves bytes, and decides nothing.
//
// - Push copies each chunk from gRPC's buffers into the space that the shard has lent for the
//   bucket. It checks checksum and numbers meanwhile, while the bytes are in the cache. It reads
//   the next chunk only if there is space, so a full shard slows its clients down.
// - Pull sends references to the published pages, without a copy. It computes checksums on the
//   executor.
// - If client and server share memory, each side copies payloads into it or out of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/runtime/executor.h"
#include "proto/parameter_service.grpc.pb.h"
#include "server/rpc/bulk_calls.h"
#include "server/rpc/bulk_traffic.h"
#include "server/rpc/late_refusal.h"
#include "server/rpc/shared_memory_stream.h"
#include "server/rpc/stream_guard.h"
#include "server/rpc/worker_connections.h"
#include "server/rpc/worker_processes.h"
#include "server/shard/parameter_shard.h"

namespace lodestar::rpc {

// BulkTraffic counts the bytes that crossed the wire since the service was created.
struct BulkTraffic {
  uint64_t bytes_received = 0;  // payload bytes
  uint64_t bytes_sent = 0;
};

class ParameterRpc final : public v1::ParameterService::WithRawCallbackMethod_Push<
                               v1::ParameterService::WithRawCallbackMethod_Pull<
                                   v1::ParameterService::WithCallbackMethod_ShareMemory<
                                       v1::ParameterService::WithRawCallbackMethod_DescribeCalls<
                                           v1::ParameterService::Service>>>> {
 public:
  // Returns the current shard. Called from any thread. Must not block. If the server is assigned
  // anew, the shard is replaced, but a stream keeps the shard that it began with. Errors:
  // Unavailable (there is no shard yet; the message says why).
  using ShardProvider = std::function<absl::StatusOr<std::shared_ptr<shard::ParameterShard>>()>;

  struct Config {
    bool share_memory = true;
    uint64_t export_key = 0;  // see StreamGuard
    StreamQuota::Config streams = {};
    absl::Duration message_timeout = absl::Minutes(1);  // see ServerLimits
    absl::Duration refusal_pause = kRefusalPause;
    std::shared_ptr<limits::RefusalCounts> refusals = std::make_shared<limits::RefusalCounts>();
    // Returns how many bytes have come from `peer`, a name from grpc::ServerContext::peer(). Null
    // means that the number is not known. Thread-safe.
    std::function<std::optional<uint64_t>(const std::string& peer)> connection_bytes = nullptr;
    // Returns the state of the connection from `peer`. Thread-safe.
    WorkerConnections::StateOf state_of = [](absl::string_view) {
      return firewall::ConnectionState::kUnknown;
    };
  };
  // `executor` must outlive the gRPC server.
  ParameterRpc(ShardProvider shards, Executor* executor, const Config& config);
  ~ParameterRpc() override;

  // Returns the traffic of all streams, for all shards that they served. Thread-safe.
  BulkTraffic traffic() const;
  // Returns how many workers share memory with this server now. Thread-safe.
  int num_shared_regions() const { return regions_->size(); }
  // Ends the streams that have waited for too long for their client to send or to read. Must be
  // called about once a second.
  void EndStalled(absl::Time now);
  // Returns the incarnations of workers that share memory with this server and whose process has
  // ended since the last call. Thread-safe.
  std::vector<messages::WorkerLife> TakeEndedProcesses() { return processes_->TakeEnded(); }
  // See WorkerConnections::AreClosed(). Thread-safe.
  bool AreConnectionsClosed(const messages::WorkerLife& life) const {
    return connections_->AreClosed(life);
  }
  // Ends the calls of ShareMemory, which would otherwise last as long as their clients. Must be
  // called before the gRPC server is shut down.
  void EndSharing() { regions_->Close(); }

  grpc::ServerReadReactor<grpc::ByteBuffer>* Push(grpc::CallbackServerContext* context,
                                                  grpc::ByteBuffer* reply) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pull(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) override;
  grpc::ServerBidiReactor<v1::SharedMemoryRequest, v1::SharedMemoryReply>* ShareMemory(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* DescribeCalls(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* reply) override;

 private:
  StreamGuard GuardOf(const grpc::CallbackServerContext& context) const;

  const ShardProvider shards_;
  Executor* const executor_;
  const std::shared_ptr<TrafficCounters> traffic_;
  const std::shared_ptr<SharedMemoryRegions> regions_;
  const std::shared_ptr<WorkerProcesses> processes_ = std::make_shared<WorkerProcesses>();
  const std::shared_ptr<WorkerConnections> connections_;
  const std::shared_ptr<BulkCalls> calls_;
  const std::shared_ptr<StreamQuota> quota_;
  const std::shared_ptr<limits::OriginPlaces> strangers_;
  const std::shared_ptr<StreamWatch> watch_;
  const std::shared_ptr<limits::RefusalCounts> refusals_;
  const uint64_t export_key_;
  const absl::Duration refusal_pause_;
  const std::function<std::optional<uint64_t>(const std::string&)> connection_bytes_;
};

}  // namespace lodestar::rpc
