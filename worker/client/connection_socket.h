// ConnectionSocket: the socket under a gRPC channel, so that a connection that is given up ends at
// once. gRPC closes one only when it has written what it was given, and the kernel sends what it
// holds even then: megabytes, which on a slow path the next connection would have to wait for.
#pragma once

#include <grpcpp/support/channel_arguments.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lodestar {

// What the kernel has counted of one connection (TCP_INFO in tcp(7)).
struct SocketCounts {
  uint64_t bytes_sent = 0;    // and acknowledged
  absl::Duration sending;     // time in which something was on its way
  absl::Duration round_trip;  // the shortest of late
};

// Thread-safe.
class ConnectionSocket {
 public:
  // Of the one channel that is made with these arguments.
  static std::shared_ptr<ConnectionSocket> Of(grpc::ChannelArguments& arguments);

  ConnectionSocket() = default;
  ~ConnectionSocket() { Replace(-1); }
  ConnectionSocket(const ConnectionSocket&) = delete;
  ConnectionSocket& operator=(const ConnectionSocket&) = delete;

  // Resets the connection that the channel has now, if it has one: what was not sent is dropped.
  void Abort() ABSL_LOCKS_EXCLUDED(mutex_);

  // None while the channel is not connected, or where the kernel does not count.
  std::optional<SocketCounts> Counts() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend struct SocketTaker;
  // Owns the descriptor from now on.
  void Replace(int descriptor) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex mutex_;
  int descriptor_ ABSL_GUARDED_BY(mutex_) = -1;  // our own of the socket: gRPC may close its
};

}  // namespace lodestar
