// SharedMemoryLink has the memory shared with one server, if that is on this machine. If a broken
// stream has left a region in an unknown state, the link makes a new region.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/messages/cluster_messages.h"
#include "worker/client/shared_memory_call.h"

namespace lodestar::client {

// Thread-safe. Constructor, destructor and Prepare() must run on threads that are not gRPC's.
class SharedMemoryLink {
 public:
  struct Config {
    std::shared_ptr<grpc::Channel> channel;  // used until UseChannel()
    // The settings of every call. If there can be no call, on_settled is called with the reason, on
    // any thread.
    SharedMemoryCall::Settings call;
  };

  explicit SharedMemoryLink(Config config);
  // When the link is destroyed, no block may be in use.
  ~SharedMemoryLink();

  // To be called before streams begin. Asks the server, in the background, if that may help.
  void Prepare() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the open call, or null if payloads go through the connection.
  std::shared_ptr<SharedMemoryCall> Current() ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells that the server is at the other end of this channel now, perhaps on another machine.
  void UseChannel(const std::shared_ptr<grpc::Channel>& channel) ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells that a stream that used `call` broke.
  void Abandon(const std::shared_ptr<SharedMemoryCall>& call) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Starts a call if there is none and the server has not refused. Moves calls that are over to
  // `done`. Errors: those of SharedMemoryCall::Start().
  absl::Status PrepareLocked(std::vector<std::shared_ptr<SharedMemoryCall>>& done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Config config_;
  absl::Mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<SharedMemoryCall> current_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<SharedMemoryCall>> ended_ ABSL_GUARDED_BY(mutex_);
  bool is_refused_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar::client
