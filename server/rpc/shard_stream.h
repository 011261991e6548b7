// The coordinator's end of one AttachShard stream: commands to the server of a shard, numbered and
// in order.
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

// Thread-safe. Keeps itself alive until gRPC is done with it. Commands wait in a queue without a
// limit; there are few, because a round opens only after every shard has done its part of the last.
class ShardStream : public grpc::ServerWriteReactor<v1::ShardCommand> {
 public:
  // `on_done` is called once when the stream is over, whichever end has ended it.
  static std::shared_ptr<ShardStream> Create(std::function<void()> on_done);

  void Send(v1::ShardCommand command) ABSL_LOCKS_EXCLUDED(mutex_);
  // A message without a command: its number shows which have come before.
  void SendNumber() { Send({}); }
  // Ends the stream after the commands sent before. Repeats are harmless.
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
