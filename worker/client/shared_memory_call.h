// SPDX-License-Identifier: Apache-2.0

// SharedMemoryCall is one ShareMemory call. It shares a region of memory with one server, and knows
// which side may write to which block. Half of the blocks are for pushes, half for pulls. The
// caller must keep the call until it is done, and must destroy it on a thread that is not gRPC's.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/messages/cluster_messages.h"
#include "common/storage/shared_region.h"
#include "proto/parameter_service.grpc.pb.h"
#include "worker/client/device_payload.h"

namespace lodestar::client {

class SharedMemoryCall final
    : public grpc::ClientBidiReactor<v1::SharedMemoryRequest, v1::SharedMemoryReply> {
 public:
  // A place in the region for one chunk.
  struct Block {
    uint64_t offset = 0;
    absl::Span<char> memory;
  };
  // The answer to TakeBlock(). kWait means that `retry` is called later. kNone means that the chunk
  // must be sent through the connection.
  enum class Answer : uint8_t { kTaken, kWait, kNone };
  struct Settings {
    messages::WorkerLife life;
    std::string life_secret;  // See Registration.
    size_t block_bytes = 0;
    int blocks = 0;  // Number of blocks per direction.
    // True if another process may continue this life after this process has ended.
    bool outlives_process = false;
    // Called once, on a gRPC thread: with OK when the server has accepted the region, otherwise
    // with the reason why it has not. May be null.
    std::function<void(const absl::Status&)> on_settled;
    // Registry for the region while the memory is shared. Null means that no device copies to or
    // from the region. The registry must outlive the call.
    HostMemoryRegistry* registry = nullptr;
    // Called after on_settled(OK) if there is a registry. The status is OK, or the reason why the
    // device cannot use the region. May be null.
    std::function<void(const absl::Status&)> on_registered;
  };

  // Starts a call. The memory is used and registered only once the server has accepted it. Errors:
  // those of SharedRegion::Create().
  static absl::StatusOr<std::shared_ptr<SharedMemoryCall>> Start(
      const std::shared_ptr<grpc::Channel>& channel, Settings settings);
  // Must not run on a gRPC thread, or while another thread copies to or from the region.
  ~SharedMemoryCall() override;

  // Returns true from the time when the server has accepted the region until the call ends.
  bool is_open() const ABSL_LOCKS_EXCLUDED(mutex_);
  bool is_done() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the region's name. Requires: the call is open.
  uint64_t name() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the reason why the call is not open.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);
  const storage::SharedRegion& region() const { return region_; }
  size_t block_bytes() const { return settings_.block_bytes; }
  // Returns true if a device copies directly to and from the region. Does not change while the call
  // is open.
  bool is_registered() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes a free block for stream `owner` and sets `block`. The stream must fill and push the
  // block, or else the block is lost. If no block is free, the answer is one of these:
  // - kWait, if the server has not freed all blocks of this stream. `retry` is called, without a
  //   lock held, when a block may be free.
  // - kNone, if this stream has no block. It must not wait, because another stream may keep all
  //   blocks.
  // kNone is also the answer once the call has ended.
  Answer TakeBlock(const void* owner, Block& block, std::function<void()> retry)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells the server that the pulled chunk at `offset` has been copied, so that the server may use
  // its block again. Errors: DataLoss if `offset` is no block for pulls.
  absl::Status MarkRead(uint64_t offset) ABSL_LOCKS_EXCLUDED(mutex_);

  // Makes the call end soon. Thread-safe.
  void End() { context_.TryCancel(); }
  // Blocks until gRPC is done with the call. Must not be called on a gRPC thread.
  void AwaitDone() ABSL_LOCKS_EXCLUDED(mutex_);

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone(const grpc::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  SharedMemoryCall(const std::shared_ptr<grpc::Channel>& channel, storage::SharedRegion region,
                   Settings settings);
  void Begin();
  // Calls on_settled if it was not called before.
  void Settle(const absl::Status& status);
  void Accepted(uint64_t name) ABSL_LOCKS_EXCLUDED(mutex_);
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t OffsetOf(int block) const { return static_cast<uint64_t>(block) * block_bytes(); }

  const std::unique_ptr<v1::ParameterService::Stub> stub_;
  storage::SharedRegion region_;
  const Settings settings_;
  bool is_settled_ = false;  // Used by one callback at a time.
  grpc::ClientContext context_;
  v1::SharedMemoryReply reply_;  // Used by one callback at a time.

  mutable absl::Mutex mutex_;
  uint64_t name_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_registered_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<uint64_t> free_ ABSL_GUARDED_BY(mutex_);  // Offsets of free blocks for pushes.
  // Owner of each block for pushes. Null means that the block is free.
  std::vector<const void*> owners_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  v1::SharedMemoryRequest pending_ ABSL_GUARDED_BY(mutex_);
  v1::SharedMemoryRequest writing_ ABSL_GUARDED_BY(mutex_);
  bool has_pending_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::client
