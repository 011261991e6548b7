// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/shard_stream.h"

#include <utility>

#include "proto/message_checksum.h"
#include "proto/status_mapping.h"

namespace lodestar::rpc {

std::shared_ptr<ShardStream> ShardStream::Create(std::function<void()> on_done) {
  std::shared_ptr<ShardStream> stream(new ShardStream(std::move(on_done)));
  stream->self_ = stream;
  return stream;
}

void ShardStream::Send(v1::ShardCommand command) {
  absl::MutexLock lock(&mutex_);
  if (is_ending_) return;
  command.set_number(++last_number_);
  wire::SetChecksum(command);
  queue_.push_back(std::move(command));
  WriteOrFinish();
}

void ShardStream::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (is_ending_) return;
  is_ending_ = true;
  end_status_ = status;
  WriteOrFinish();
}

// Writes the front of the queue, or finishes the call. The message stays in the queue until
// OnWriteDone(), because gRPC reads it until then.
void ShardStream::WriteOrFinish() {
  if (is_writing_ || is_finished_) return;
  if (!queue_.empty()) {
    is_writing_ = true;
    StartWrite(&queue_.front());
  } else if (is_ending_) {
    is_finished_ = true;
    Finish(wire::ToGrpcStatus(end_status_));
  }
}

void ShardStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  is_writing_ = false;
  queue_.pop_front();
  if (!ok) {
    queue_.clear();
    is_ending_ = true;
    end_status_ = absl::UnavailableError("the connection of the shard's server is gone");
  }
  WriteOrFinish();
}

void ShardStream::OnCancel() {
  End(absl::CancelledError("the shard's server has closed its connection"));
}

void ShardStream::OnDone() {
  on_done_();
  self_.reset();
}

}  // namespace lodestar::rpc
