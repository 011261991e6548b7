// The memory shared with one server, if it is on this machine; makes a new region after one that a
// broken stream has left in an unknown state.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/cluster_messages.h"
#include "worker/client/shared_memory_call.h"

namespace lodestar {

// Thread-safe. Constructed, destroyed and Prepare()d on threads that are not gRPC's.
class SharedMemoryLink {
 public:
  struct Config {
    std::shared_ptr<grpc::Channel> channel;  // until UseChannel()
    // Of every call. on_settled: also told, on any thread, why there is none.
    SharedMemoryCall::Settings call;
  };

  explicit SharedMemoryLink(Config config);
  // No block may be in use.
  ~SharedMemoryLink();

  // Before streams begin: asks the server, in the background, if that may help.
  void Prepare() ABSL_LOCKS_EXCLUDED(mutex_);
  // The open call, or null: payloads go through the connection.
  std::shared_ptr<SharedMemoryCall> Current() ABSL_LOCKS_EXCLUDED(mutex_);
  // The server is at the other end of this channel now, perhaps of another machine.
  void UseChannel(const std::shared_ptr<grpc::Channel>& channel) ABSL_LOCKS_EXCLUDED(mutex_);
  // A stream that used `call` broke.
  void Abandon(const std::shared_ptr<SharedMemoryCall>& call) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Moves what is over to `done`. Errors: those of SharedMemoryCall::Start().
  absl::Status PrepareLocked(std::vector<std::shared_ptr<SharedMemoryCall>>& done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Config config_;
  absl::Mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<SharedMemoryCall> current_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<SharedMemoryCall>> ended_ ABSL_GUARDED_BY(mutex_);
  bool is_refused_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar
