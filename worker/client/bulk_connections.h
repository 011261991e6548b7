// BulkConnections is what the sessions of one BulkGrpcTransport share: channels, the way from a
// bucket to its stream, threads and counters. Only counters change, and channels and addresses,
// which may be replaced. It must outlive the sessions. Thread-safe.
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

// Returns the error of a stream that has not ended with OK. If this worker has cancelled the
// stream, its session already has another error, and this one does not count. So Cancelled becomes
// Unavailable: the server has ended a stream of which its client took nothing. It could not say so,
// because no message gets through.
absl::Status ErrorOfStream(const grpc::Status& status);

class BulkConnections {
 public:
  explicit BulkConnections(BulkGrpcTransportConfig config);

  // There is one stream per data channel: first all channels of the first server, then those of the
  // second, ... Channels that no bucket uses never connect.
  int num_streams() const {
    return static_cast<int>(shard_bytes_.size()) * config_.channels_per_server;
  }
  // Returns the channel that calls of the stream use from now on.
  std::shared_ptr<grpc::Channel> ChannelOf(int stream) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns one bucket of each stream that carries buckets, by stream. If the stream has a bucket
  // that is large enough, the bucket shows that the path takes more than small packets. It is no
  // larger than it needs to be.
  std::map<int, const Bucket*> TrialBuckets() const;
  // Returns the address of the server, for error texts.
  std::string server(int stream) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the error of `deed` ("pull from") with the server's address, and with what to do if
  // this machine cannot find it. A server that does not know the secret of this life is Aborted:
  // whether the coordinator knows it is seen by registering again.
  absl::Status Explain(absl::string_view deed, int stream, const absl::Status& error) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // See ParameterTransport.
  void MoveTo(const std::vector<std::string>& addresses) ABSL_LOCKS_EXCLUDED(mutex_);

  // To be called before streams begin.
  void PrepareSharedMemory();
  // Returns the memory shared with the server of a stream, or null. If a stream breaks, the caller
  // must Abandon() the memory that the stream used.
  std::shared_ptr<SharedMemoryCall> SharedMemory(int stream);
  void Abandon(int stream, const std::shared_ptr<SharedMemoryCall>& call);
  // See ParameterTransport.
  bool ReachesDevice(uint32_t bucket);

  // Returns how large chunks of the next call are to be, if they do not go through shared memory.
  size_t ChunkBytes(int stream, bool is_push);
  // The caller calls BeginCall() before it starts a call, and EndCall() when the call is over.
  // BeginCall() writes the call's metadata: the life's secret and, if there is a watchdog, a
  // number. Returns the number, or 0 without a watchdog.
  uint64_t BeginCall(int stream, const std::shared_ptr<WatchedCall>& call,
                     grpc::ClientContext& context);
  void EndCall(uint64_t number, const absl::Status& status);
  // To be called for every call over `channel` that was not cancelled. If a call has a status with
  // which no server ends it, it was damaged on its way. The damage may have stayed in the
  // connection, for example in its table of headers: then no later call on the connection would be
  // understood. So later calls go over another connection.
  void CheckConnection(int stream, const std::shared_ptr<grpc::Channel>& channel,
                       const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // See ParameterTransport.
  std::optional<Standstill> standstill() const;

  // Returns the stream that carries a bucket. Errors: InvalidArgument if there is no such bucket,
  // or if `num_bytes` is not its length in this encoding.
  absl::StatusOr<int> StreamOf(uint32_t bucket) const;
  absl::StatusOr<int> StreamOf(uint32_t bucket, Encoding encoding, size_t num_bytes) const;

  const BulkGrpcTransportConfig& config() const { return config_; }
  Executor& executor() { return executor_; }

  // Measures what has been sent since the last call of this. The servers must have acknowledged it.
  void MeasureSent() ABSL_LOCKS_EXCLUDED(mutex_);
  void MeasureReceived(uint64_t bytes, absl::Duration took) { meter_.OnReceived(bytes, took); }
  // See ParameterTransport.
  PathFacts path() const { return meter_.facts(); }

  std::atomic<uint64_t> bytes_pushed{0};
  std::atomic<uint64_t> bytes_pulled{0};

 private:
  std::unique_ptr<SharedMemoryLink> MakeLink(const std::shared_ptr<grpc::Channel>& channel) const;
  struct Connection {
    std::shared_ptr<grpc::Channel> channel;
    std::shared_ptr<ConnectionSocket> socket;
    SocketCounts measured = {};  // the counts when they were read last
  };
  Connection Open(int stream) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes later calls of the stream go over another connection. The returned function ends the old
  // connection.
  std::function<void()> Replace(int stream) ABSL_LOCKS_EXCLUDED(mutex_);
  int StreamOf(const Bucket& bucket) const;

  const BulkGrpcTransportConfig config_;
  const std::vector<int64_t> shard_bytes_;  // of fp32
  mutable absl::Mutex mutex_;
  std::vector<std::string> servers_ ABSL_GUARDED_BY(mutex_);     // host:port, by shard
  std::vector<Connection> connections_ ABSL_GUARDED_BY(mutex_);  // by stream
  PathMeter meter_;
  ThreadPool executor_;
  // The links by server; empty if memory is not to be shared. They are destroyed before the
  // executor, which they use.
  std::vector<std::unique_ptr<SharedMemoryLink>> links_;
  std::unique_ptr<CallWatchdog> watchdog_;  // null if calls are not watched
};

}  // namespace lodestar::client
