// One ShareMemory call: a region shared with one server, and who may write where in it. Half of its
// blocks are for pushes, half for pulls. Whoever starts a call keeps it until it is done and
// destroys it on a thread that is not gRPC's.
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
#include "common/cluster_messages.h"
#include "common/shared_region.h"
#include "proto/parameter_service.grpc.pb.h"
#include "worker/client/device_payload.h"

namespace lodestar {

class SharedMemoryCall final
    : public grpc::ClientBidiReactor<v1::SharedMemoryRequest, v1::SharedMemoryReply> {
 public:
  // Where a chunk may be written.
  struct Block {
    uint64_t offset = 0;
    absl::Span<char> memory;
  };
  // kNone: do without.
  enum class Answer : uint8_t { kTaken, kWait, kNone };
  struct Settings {
    WorkerLife life;
    std::string life_secret;  // see Registration
    size_t block_bytes = 0;
    int blocks = 0;                 // for each direction
    bool outlives_process = false;  // another process may go on with the life
    // Called once, on a gRPC thread: OK when the server has the region, or why it does not. May be
    // null.
    std::function<void(const absl::Status&)> on_settled;
    // Told of the region while it is shared; null: no device copies there. It outlives the call.
    HostMemoryRegistry* registry = nullptr;
    // Called after on_settled(OK), where there is a registry: OK, or why the device does not copy
    // there. May be null.
    std::function<void(const absl::Status&)> on_registered;
  };

  // Errors: those of SharedRegion::Create(). The worker's memory is touched, and registered, only
  // once the server has accepted it.
  static absl::StatusOr<std::shared_ptr<SharedMemoryCall>> Start(
      const std::shared_ptr<grpc::Channel>& channel, Settings settings);
  // Not on a gRPC thread. Nobody copies to or from the region any more.
  ~SharedMemoryCall() override;

  // True between the server's answer and the end of the call.
  bool is_open() const ABSL_LOCKS_EXCLUDED(mutex_);
  bool is_done() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The region's name; of an open call.
  uint64_t name() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Why it is not, or no longer, open.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);
  const SharedRegion& region() const { return region_; }
  size_t block_bytes() const { return settings_.block_bytes; }
  // Whether a device copies straight to and from the region; of an open call it does not change.
  bool is_registered() const ABSL_LOCKS_EXCLUDED(mutex_);

  // A block for the stream `owner` to fill and to push. kWait: `retry` will be called, without a
  // lock held, when there may be one; asking again is then up to the caller. What is taken and not
  // pushed is lost. Only a stream that has blocks on their way waits: one may hold all of them
  // until another one gets on, and that one must not wait for it.
  Answer TakeBlock(const void* owner, Block& block, std::function<void()> retry)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // A pulled chunk has been copied: the server may write there again. Errors: Internal if the
  // server was never allowed to write there.
  absl::Status MarkRead(uint64_t offset) ABSL_LOCKS_EXCLUDED(mutex_);

  // Soon closed. Thread-safe.
  void End() { context_.TryCancel(); }
  // Until gRPC is done with the call. Not on a gRPC thread.
  void AwaitDone() ABSL_LOCKS_EXCLUDED(mutex_);

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone(const grpc::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  SharedMemoryCall(const std::shared_ptr<grpc::Channel>& channel, SharedRegion region,
                   Settings settings);
  void Begin();
  // Tells `settings_` once what became of the call.
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
  std::vector<uint64_t> free_ ABSL_GUARDED_BY(mutex_);       // for pushes, by offset
  std::vector<const void*> owners_ ABSL_GUARDED_BY(mutex_);  // by block for pushes; null: free
  std::vector<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  v1::SharedMemoryRequest pending_ ABSL_GUARDED_BY(mutex_);
  v1::SharedMemoryRequest writing_ ABSL_GUARDED_BY(mutex_);
  bool has_pending_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar
