// What the sessions of one BulkGrpcTransport share: channels, the way from a bucket to its stream,
// threads and counters. Immutable but for the counters; outlives the sessions.
#pragma once

#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/encoding.h"
#include "common/executor.h"
#include "worker/client/bulk_grpc_transport.h"
#include "worker/client/shared_memory_link.h"

namespace lodestar {

class BulkConnections {
 public:
  explicit BulkConnections(BulkGrpcTransportConfig config);

  // One stream per data channel: all channels of the first server, then those of the second, ...
  // Channels that no bucket uses never connect.
  int num_streams() const { return static_cast<int>(stubs_.size()); }
  grpc::GenericStub& stub(int stream) { return stubs_[stream]; }
  // Address of the server, for error texts.
  const std::string& server(int stream) const;

  // Before streams begin.
  void PrepareSharedMemory();
  // The memory shared with the server of a stream, or null; Abandon() what a broken stream used.
  std::shared_ptr<SharedMemoryCall> SharedMemory(int stream);
  void Abandon(int stream, const std::shared_ptr<SharedMemoryCall>& call);

  // The stream that carries a bucket. Errors: InvalidArgument if that is not its length in this
  // encoding, or there is no such bucket.
  absl::StatusOr<int> StreamOf(uint32_t bucket, Encoding encoding, size_t num_bytes) const;

  const BulkGrpcTransportConfig& config() const { return config_; }
  Executor& executor() { return executor_; }

  std::atomic<uint64_t> bytes_pushed{0};
  std::atomic<uint64_t> bytes_pulled{0};

 private:
  std::unique_ptr<SharedMemoryLink> MakeLink(const std::shared_ptr<grpc::Channel>& channel) const;

  const BulkGrpcTransportConfig config_;
  const std::vector<int64_t> shard_bytes_;  // of fp32
  std::vector<grpc::GenericStub> stubs_;
  ThreadPool executor_;
  // By server; empty if memory is not to be shared. Ends before the executor, which it uses.
  std::vector<std::unique_ptr<SharedMemoryLink>> links_;
};

}  // namespace lodestar
