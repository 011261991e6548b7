// SPDX-License-Identifier: Apache-2.0

// SharedMemoryLink holds the memory shared with one server of this machine. If a broken stream has
// left the region in an unknown state, the link makes a new region.
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

// Keeps one open SharedMemoryCall. Thread-safe. Constructor, destructor and Prepare() must run on
// threads that are not gRPC's.
class SharedMemoryLink {
 public:
  struct Config {
    std::shared_ptr<grpc::Channel> channel;  // Used until UseChannel().
    // Settings of every call. If no call can be made, on_settled is called with the reason, on any
    // thread.
    SharedMemoryCall::Settings call;
  };

  explicit SharedMemoryLink(Config config);
  // Requires: no block is in use.
  ~SharedMemoryLink();

  // Must be called before streams begin. Asks the server in the background to share memory, unless
  // memory is shared already or the server has refused.
  void Prepare() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the open call. Null means that payloads go through the connection.
  std::shared_ptr<SharedMemoryCall> Current() ABSL_LOCKS_EXCLUDED(mutex_);
  // Uses this channel from now on. The next Prepare() asks the server again, even if it has
  // refused, because the channel may lead to another machine.
  void UseChannel(const std::shared_ptr<grpc::Channel>& channel) ABSL_LOCKS_EXCLUDED(mutex_);
  // Must be called when a stream that used `call` broke. Later streams do not use the region of
  // `call`.
  void Abandon(const std::shared_ptr<SharedMemoryCall>& call) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Starts a call, unless there is one or the server has refused. Moves calls that are over to
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
