// SPDX-License-Identifier: Apache-2.0

// ConnectionSocket is the socket under a gRPC channel. It can end the connection at once. gRPC
// itself closes a connection only when all data have been written, and even then the kernel still
// sends what is in its buffers. On a slow path the next connection would have to wait for these
// megabytes.
#pragma once

#include <grpcpp/support/channel_arguments.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lodestar::client {

// The kernel's counts of one connection (TCP_INFO in tcp(7)).
struct SocketCounts {
  uint64_t bytes_sent = 0;    // Bytes sent and acknowledged.
  absl::Duration sending;     // Time in which unacknowledged data were on their way.
  absl::Duration round_trip;  // The shortest recent round trip.
};

// Owns a duplicate of the socket's descriptor. Thread-safe.
class ConnectionSocket {
 public:
  // Makes a ConnectionSocket for the channel that will be created with these arguments. Use the
  // arguments for one channel only.
  static std::shared_ptr<ConnectionSocket> Of(grpc::ChannelArguments& arguments);

  ConnectionSocket() = default;
  ~ConnectionSocket() { Replace(-1); }
  ConnectionSocket(const ConnectionSocket&) = delete;
  ConnectionSocket& operator=(const ConnectionSocket&) = delete;

  // Resets the channel's present connection, if there is one. Data that were not sent are dropped.
  void Abort() ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns the counts of the present connection. Returns nullopt if the channel is not connected,
  // or if the kernel does not count.
  std::optional<SocketCounts> Counts() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend struct SocketTaker;
  // Takes ownership of the descriptor.
  void Replace(int descriptor) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex mutex_;
  // A descriptor of our own, because gRPC may close its descriptor at any time. -1 means none.
  int descriptor_ ABSL_GUARDED_BY(mutex_) = -1;
};

}  // namespace lodestar::client
