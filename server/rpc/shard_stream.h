// SPDX-License-Identifier: Apache-2.0

// ShardStream is the coordinator's end of one AttachShard stream. It sends commands to the server
// of a shard, numbered and in order.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "proto/cluster_service.grpc.pb.h"

namespace lodestar::rpc {

// The class is thread-safe. It keeps itself alive until gRPC is done with it. The queue of commands
// has no limit, but stays short: a round opens only after every shard has done its part of the last
// round.
class ShardStream : public grpc::ServerWriteReactor<v1::ShardCommand> {
 public:
  // `on_done` is called once, when the stream has ended.
  static std::shared_ptr<ShardStream> Create(std::function<void()> on_done);

  void Send(v1::ShardCommand command) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends a message without a command. Its number shows the server which commands should have come
  // before.
  void SendNumber() { Send({}); }
  // Ends the stream after the commands that were sent before. Repeats are harmless.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCancel() override;
  void OnDone() override;

 private:
  explicit ShardStream(std::function<void()> on_done) : on_done_(std::move(on_done)) {}
  void WriteOrFinish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::function<void()> on_done_;
  std::shared_ptr<ShardStream> self_;
  absl::Mutex mutex_;
  std::deque<v1::ShardCommand> queue_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::rpc
