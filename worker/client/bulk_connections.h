// SPDX-License-Identifier: Apache-2.0

// BulkConnections holds what the sessions of one BulkGrpcTransport share: channels, the stream that
// carries each bucket, threads and counters. Channels and addresses may be replaced.
// BulkConnections must outlive the sessions. Thread-safe.
#pragma once

#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/messages/cluster_messages.h"
#include "common/params/encoding.h"
#include "common/runtime/executor.h"
#include "worker/client/bulk_grpc_transport.h"
#include "worker/client/call_watchdog.h"
#include "worker/client/connection_socket.h"
#include "worker/client/path_meter.h"
#include "worker/client/shared_memory_link.h"

namespace lodestar::client {

// Returns the error of a stream that has not ended with OK. If gRPC reports Cancelled, returns
// Unavailable: the server has ended the stream, and its reason was lost on the way. If this worker
// itself has cancelled the stream, the session ignores the result.
absl::Status ErrorOfStream(const grpc::Status& status);

class BulkConnections {
 public:
  explicit BulkConnections(BulkGrpcTransportConfig config);

  // Returns the number of streams: one per data channel. The channels of the first server come
  // first, then those of the second, and so on. Channels that no bucket uses never connect.
  int num_streams() const {
    return static_cast<int>(shard_bytes_.size()) * config_.channels_per_server;
  }
  // Returns the channel for the stream's next calls.
  std::shared_ptr<grpc::Channel> ChannelOf(int stream) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns for each stream the bucket with which the stream is tested. Streams without buckets
  // have no entry. Some networks pass only small packets. So the best bucket is the smallest one of
  // at least 64 KiB, or the largest if all are smaller.
  std::map<int, const params::Bucket*> TrialBuckets() const;
  // Returns the address of the stream's server, for error messages.
  std::string server(int stream) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns `error` with a message that begins with `deed` (such as "pull from") and the server's
  // address. If this machine cannot reach that address, the message says what to do. If the server
  // does not know the secret of the worker's life, the code becomes Aborted. Then the worker
  // registers again, and the coordinator decides whether the secret is right.
  absl::Status Explain(absl::string_view deed, int stream, const absl::Status& error) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // See ParameterTransport.
  void MoveTo(const std::vector<std::string>& addresses) ABSL_LOCKS_EXCLUDED(mutex_);

  // Begins to share memory with the servers of this machine. Must be called before streams begin.
  void PrepareSharedMemory();
  // SharedMemory() returns the memory shared with the server of a stream, or null if no memory is
  // shared. If a stream breaks, the caller must call Abandon() with the memory that the stream
  // used. Later streams do not use it.
  std::shared_ptr<SharedMemoryCall> SharedMemory(int stream);
  void Abandon(int stream, const std::shared_ptr<SharedMemoryCall>& call);
  // See ParameterTransport.
  bool ReachesDevice(uint32_t bucket);

  // Returns the chunk size for the next call, for chunks that do not go through shared memory.
  size_t ChunkBytes(int stream, bool is_push);
  // Must be called before a call starts. Adds metadata to the call: the secret of the worker's life
  // and, if there is a watchdog, the call's number. Returns that number, or 0 if there is no
  // watchdog. EndCall() must be called with that number when the call is over.
  uint64_t BeginCall(int stream, const std::shared_ptr<WatchedCall>& call,
                     grpc::ClientContext& context);
  void EndCall(uint64_t number, const absl::Status& status);
  // Must be called after every call over `channel` that was not cancelled. Status codes UNKNOWN and
  // INTERNAL come from no server, so they show that data was damaged on the way. Such damage may
  // stay in the connection, for example in its table of headers. So later calls of the stream then
  // use another connection.
  void CheckConnection(int stream, const std::shared_ptr<grpc::Channel>& channel,
                       const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // See ParameterTransport.
  std::optional<messages::Standstill> standstill() const;

  // Returns the stream that carries a bucket. Errors: InvalidArgument if there is no such bucket,
  // or if `num_bytes` is not its length in this encoding.
  absl::StatusOr<int> StreamOf(uint32_t bucket) const;
  absl::StatusOr<int> StreamOf(uint32_t bucket, params::Encoding encoding, size_t num_bytes) const;

  const BulkGrpcTransportConfig& config() const { return config_; }
  Executor& executor() { return executor_; }

  // Measures the transfer of the data sent since the last MeasureSent(). Requires: the servers have
  // acknowledged all these data.
  void MeasureSent() ABSL_LOCKS_EXCLUDED(mutex_);
  void MeasureReceived(uint64_t bytes, absl::Duration took) { meter_.OnReceived(bytes, took); }
  // See ParameterTransport.
  messages::PathFacts path() const { return meter_.facts(); }

  std::atomic<uint64_t> bytes_pushed{0};
  std::atomic<uint64_t> bytes_pulled{0};

 private:
  std::unique_ptr<SharedMemoryLink> MakeLink(const std::shared_ptr<grpc::Channel>& channel) const;
  struct Connection {
    std::shared_ptr<grpc::Channel> channel;
    std::shared_ptr<ConnectionSocket> socket;
    // The socket's counts at the last MeasureSent().
    SocketCounts measured = {};
  };
  Connection Open(int stream) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes later calls of the stream use a new connection. Call the returned function to end the old
  // connection.
  std::function<void()> Replace(int stream) ABSL_LOCKS_EXCLUDED(mutex_);
  int StreamOf(const params::Bucket& bucket) const;

  const BulkGrpcTransportConfig config_;
  // Size of the fp32 weights of each server, in bytes.
  const std::vector<int64_t> shard_bytes_;
  mutable absl::Mutex mutex_;
  std::vector<std::string> servers_ ABSL_GUARDED_BY(mutex_);     // One host:port per shard.
  std::vector<Connection> connections_ ABSL_GUARDED_BY(mutex_);  // One entry per stream.
  PathMeter meter_;
  ThreadPool executor_;
  // One link per server. Empty means that memory is not shared. The links use the executor, so they
  // are destroyed before it.
  std::vector<std::unique_ptr<SharedMemoryLink>> links_;
  std::unique_ptr<CallWatchdog> watchdog_;  // Null means that calls are not watched.
};

}  // namespace lodestar::client
