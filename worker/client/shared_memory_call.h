// SharedMemoryCall is one ShareMemory call: a region shared with one server, and which side may
// write where in it. Half of its blocks are for pushes, half for pulls. The caller keeps the call
// until it is done, and destroys it on a thread that is not gRPC's.
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
  // The place where a chunk may be written.
  struct Block {
    uint64_t offset = 0;
    absl::Span<char> memory;
  };
  // kNone means that the caller does without a block.
  enum class Answer : uint8_t { kTaken, kWait, kNone };
  struct Settings {
    WorkerLife life;
    std::string life_secret;  // see Registration
    size_t block_bytes = 0;
    int blocks = 0;                 // for each direction
    bool outlives_process = false;  // true if another process may go on with the life
    // Called once, on a gRPC thread, with OK when the server has the region, or with the reason why
    // it does not. May be null.
    std::function<void(const absl::Status&)> on_settled;
    // Has the region registered while it is shared. Null means that no device copies there. The
    // registry must outlive the call.
    HostMemoryRegistry* registry = nullptr;
    // If there is a registry, called after on_settled(OK) with OK, or with the reason why the
    // device does not copy there. May be null.
    std::function<void(const absl::Status&)> on_registered;
  };

  // Starts a call. The worker's memory is touched, and registered, only once the server has
  // accepted it. Errors: those of SharedRegion::Create().
  static absl::StatusOr<std::shared_ptr<SharedMemoryCall>> Start(
      const std::shared_ptr<grpc::Channel>& channel, Settings settings);
  // Must not run on a gRPC thread, nor while a thread copies to or from the region.
  ~SharedMemoryCall() override;

  // True between the server's answer and the end of the call.
  bool is_open() const ABSL_LOCKS_EXCLUDED(mutex_);
  bool is_done() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the region's name. The call must be open.
  uint64_t name() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns why the call is not, or no longer, open.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);
  const SharedRegion& region() const { return region_; }
  size_t block_bytes() const { return settings_.block_bytes; }
  // Returns true if a device copies straight to and from the region. While the call is open, this
  // does not change.
  bool is_registered() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes a block for the stream `owner` to fill and to push. kWait means that `retry` will be
  // called, without a lock held, when there may be a block; the caller may then ask again. If a
  // block is taken and not pushed, it is lost. Only a stream that has blocks on their way is told
  // to wait. Others do without, because one stream may hold all blocks until another stream gets
  // on.
  Answer TakeBlock(const void* owner, Block& block, std::function<void()> retry)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells the server that a pulled chunk has been copied, and that it may write there again.
  // Errors: DataLoss if the server was never allowed to write there.
  absl::Status MarkRead(uint64_t offset) ABSL_LOCKS_EXCLUDED(mutex_);

  // Makes the call end soon. Thread-safe.
  void End() { context_.TryCancel(); }
  // Blocks until gRPC is done with the call. Must not be called on a gRPC thread.
  void AwaitDone() ABSL_LOCKS_EXCLUDED(mutex_);

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone(const grpc::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  SharedMemoryCall(const std::shared_ptr<grpc::Channel>& channel, SharedRegion region,
                   Settings settings);
  void Begin();
  // Calls on_settled, only once, with what became of the call.
  void Settle(const absl::Status& status);
  void Accepted(uint64_t name) ABSL_LOCKS_EXCLUDED(mutex_);
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t OffsetOf(int block) const { return static_cast<uint64_t>(block) * block_bytes(); }

  const std::unique_ptr<v1::ParameterService::Stub> stub_;
  SharedRegion region_;
  const Settings settings_;
  bool is_settled_ = false;  // touched by one callback at a time
  grpc::ClientContext context_;
  v1::SharedMemoryReply reply_;  // touched by one callback at a time

  mutable absl::Mutex mutex_;
  uint64_t name_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_registered_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<uint64_t> free_ ABSL_GUARDED_BY(mutex_);  // for pushes, by offset
  // The owner of each block for pushes; null if the block is free.
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
