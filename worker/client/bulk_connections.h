// What the sessions of one BulkGrpcTransport share: channels, the way from a bucket to its stream,
// threads and counters. Immutable but for counters, and channels and addresses that are replaced;
// outlives the sessions. Thread-safe.
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
#include "common/cluster_messages.h"
#include "common/encoding.h"
#include "common/executor.h"
#include "worker/client/bulk_grpc_transport.h"
#include "worker/client/call_watchdog.h"
#include "worker/client/connection_socket.h"
#include "worker/client/path_meter.h"
#include "worker/client/shared_memory_link.h"

namespace lodestar {

// Of a stream that has not ended with OK, and that this worker has not cancelled: or else its
// session has an error by then, and this one does not count. A server ends what its client takes
// nothing of without any words, because none get through.
absl::Status ErrorOfStream(const grpc::Status& status);

class BulkConnections {
 public:
  explicit BulkConnections(BulkGrpcTransportConfig config);

  // One stream per data channel: all channels of the first server, then those of the second, ...
  // Channels that no bucket uses never connect.
  int num_streams() const {
    return static_cast<int>(shard_bytes_.size()) * config_.channels_per_server;
  }
  // What calls of the stream go over from now on.
  std::shared_ptr<grpc::Channel> ChannelOf(int stream) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of each stream that carries buckets one of them, by stream: enough of it to show that the path
  // takes more than small packets, and no more than it needs.
  std::map<int, const Bucket*> TrialBuckets() const;
  // Address of the server, for error texts.
  std::string server(int stream) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the error of `deed` ("pull from") with the server's address, and with what to do if
  // this machine cannot find it. A server that does not know the secret of this life is Aborted:
  // whether the coordinator knows it is seen by registering again.
  absl::Status Explain(absl::string_view deed, int stream, const absl::Status& error) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // See ParameterTransport.
  void MoveTo(const std::vector<std::string>& addresses) ABSL_LOCKS_EXCLUDED(mutex_);

  // Before streams begin.
  void PrepareSharedMemory();
  // The memory shared with the server of a stream, or null; Abandon() what a broken stream used.
  std::shared_ptr<SharedMemoryCall> SharedMemory(int stream);
  void Abandon(int stream, const std::shared_ptr<SharedMemoryCall>& call);
  // See ParameterTransport.
  bool ReachesDevice(uint32_t bucket);

  // How large chunks of the next call are to be, where they do not go through shared memory.
  size_t ChunkBytes(int stream, bool is_push);
  // Whoever starts a call has its metadata written first, the life's secret and, where somebody
  // looks, a number; and tells when it is over.
  uint64_t BeginCall(int stream, const std::shared_ptr<WatchedCall>& call,
                     grpc::ClientContext& context);
  void EndCall(uint64_t number, const absl::Status& status);
  // To be told of every call over `channel` that was not cancelled. One that no server ends like
  // that has met with damage, which may have stayed in the connection, as in its table of headers:
  // then no later call on it would be understood, either, and later ones go over another one.
  void CheckConnection(int stream, const std::shared_ptr<grpc::Channel>& channel,
                       const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // See ParameterTransport.
  std::optional<Standstill> standstill() const;

  // The stream that carries a bucket. Errors: InvalidArgument if there is no such bucket, or that
  // is not its length in this encoding.
  absl::StatusOr<int> StreamOf(uint32_t bucket) const;
  absl::StatusOr<int> StreamOf(uint32_t bucket, Encoding encoding, size_t num_bytes) const;

  const BulkGrpcTransportConfig& config() const { return config_; }
  Executor& executor() { return executor_; }

  // What has been sent since the last call, now that the servers have acknowledged it.
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
    SocketCounts measured = {};  // when it was looked at last
  };
  Connection Open(int stream) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Later calls of the stream go over another connection. What is returned ends the old one.
  std::function<void()> Replace(int stream) ABSL_LOCKS_EXCLUDED(mutex_);
  int StreamOf(const Bucket& bucket) const;

  const BulkGrpcTransportConfig config_;
  const std::vector<int64_t> shard_bytes_;  // of fp32
  mutable absl::Mutex mutex_;
  std::vector<std::string> servers_ ABSL_GUARDED_BY(mutex_);     // host:port, by shard
  std::vector<Connection> connections_ ABSL_GUARDED_BY(mutex_);  // by stream
  PathMeter meter_;
  ThreadPool executor_;
  // By server; empty if memory is not to be shared. Ends before the executor, which it uses.
  std::vector<std::unique_ptr<SharedMemoryLink>> links_;
  std::unique_ptr<CallWatchdog> watchdog_;  // null: nobody looks
};

}  // namespace lodestar
