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

// Returns the error of a stream that has not ended with OK. Cancelled becomes Unavailable: it means
// that the server ended the stream and its reason got lost on the way. If this worker has cancelled
// the stream, the session already has another error and ignores this one.
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
  // Returns the bucket with which each stream is tested, by stream. Streams without buckets have no
  // entry. The bucket must be large enough to show that the path lets more than small packets
  // through. So it is the smallest bucket that is large enough, or the largest of all if none is.
  std::map<int, const params::Bucket*> TrialBuckets() const;
  // Returns the address of the stream's server, for error messages.
  std::string server(int stream) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns `error` with a message that names what was tried (`deed`, such as "pull from") and the
  // server's address. If this machine cannot reach that address, the message says what to do. If
  // the server does not know the secret of this life, the code becomes Aborted, because registering
  // again shows whether the coordinator knows the secret.
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
  // BeginCall() must be called before a call starts, and EndCall() when the call is over.
  // BeginCall() adds the call's metadata: the secret of the life and, if there is a watchdog, a
  // number. Returns this number. 0 means that there is no watchdog.
  uint64_t BeginCall(int stream, const std::shared_ptr<WatchedCall>& call,
                     grpc::ClientContext& context);
  void EndCall(uint64_t number, const absl::Status& status);
  // Must be called after every call over `channel` that was not cancelled. A status that no server
  // sends shows that the call was damaged on its way. The damage may stay in the connection, for
  // example in its table of headers, and spoil all later calls. In that case later calls of the
  // stream use another connection.
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
