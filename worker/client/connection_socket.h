// ConnectionSocket is the socket under a gRPC channel. With it, a connection that is given up ends
// at once. gRPC closes a connection only when it has written what it was given, and even then the
// kernel sends what it holds. These are megabytes, for which the next connection would have to wait
// on a slow path.
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
  uint64_t bytes_sent = 0;    // bytes sent and acknowledged
  absl::Duration sending;     // time in which something was on its way
  absl::Duration round_trip;  // the shortest round trip of late
};

// Thread-safe.
class ConnectionSocket {
 public:
  // Returns the socket of the one channel that is made with these arguments.
  static std::shared_ptr<ConnectionSocket> Of(grpc::ChannelArguments& arguments);

  ConnectionSocket() = default;
  ~ConnectionSocket() { Replace(-1); }
  ConnectionSocket(const ConnectionSocket&) = delete;
  ConnectionSocket& operator=(const ConnectionSocket&) = delete;

  // Resets the connection that the channel has now, if it has one: what was not sent is dropped.
  void Abort() ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns nothing while the channel is not connected, or if the kernel does not count.
  std::optional<SocketCounts> Counts() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend struct SocketTaker;
  // Takes ownership of the descriptor.
  void Replace(int descriptor) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex mutex_;
  // Our own descriptor of the socket, because gRPC may close its descriptor. -1 means none.
  int descriptor_ ABSL_GUARDED_BY(mutex_) = -1;
};

}  // namespace lodestar::client
