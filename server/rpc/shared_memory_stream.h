// SPDX-License-Identifier: Apache-2.0

// Shared memory of workers on the same machine. Each ShareMemory call shares one region and gives
// it a name, by which chunks refer to the region. A region stays mapped while its call, or a stream
// that uses it, exists.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "common/storage/shared_region.h"
#include "proto/parameter_service.grpc.pb.h"
#include "server/limits/refusal_counts.h"
#include "server/rpc/stream_watch.h"
#include "server/rpc/worker_processes.h"

namespace lodestar::rpc {

class SharedMemoryStream;

// SharedMemoryRegions holds the regions of all workers by their names. It is thread-safe.
class SharedMemoryRegions {
 public:
  // If `is_enabled` is false, all regions are refused.
  explicit SharedMemoryRegions(bool is_enabled, std::shared_ptr<limits::RefusalCounts> refusals =
                                                    std::make_shared<limits::RefusalCounts>())
      : is_enabled_(is_enabled), refusals_(std::move(refusals)) {}

  // Returns the region of this name. Errors: Unavailable (this worker has no region of this name
  // now).
  absl::StatusOr<std::shared_ptr<SharedMemoryStream>> Find(uint64_t name, WorkerId worker) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  int size() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Checks that there is room for another region of this worker. Errors: FailedPrecondition (too
  // many or too large regions, or this server does not share memory).
  absl::Status CheckRoom(WorkerId worker, uint64_t bytes) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Adds a region. Errors: those of CheckRoom().
  absl::Status Add(uint64_t name, std::shared_ptr<SharedMemoryStream> stream)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(uint64_t name) ABSL_LOCKS_EXCLUDED(mutex_);
  // Counts a call that has not named a region yet, until EndOpening(). Returns false if there are
  // too many such calls.
  bool TryBeginOpening() ABSL_LOCKS_EXCLUDED(mutex_);
  void EndOpening() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends all calls, and refuses new ones.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status CheckRoomLocked(WorkerId worker, uint64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const bool is_enabled_;
  const std::shared_ptr<limits::RefusalCounts> refusals_;
  mutable absl::Mutex mutex_;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  int num_opening_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::shared_ptr<SharedMemoryStream>> by_name_ ABSL_GUARDED_BY(mutex_);
};

// A SharedMemoryStream is one ShareMemory call with its region. It is thread-safe once
// SharedMemoryRegions has it. It keeps itself alive until gRPC is done with it.
class SharedMemoryStream final
    : public grpc::ServerBidiReactor<v1::SharedMemoryRequest, v1::SharedMemoryReply>,
      public WatchedStream,
      public std::enable_shared_from_this<SharedMemoryStream> {
 public:
  // A place in the region that a chunk may be written to.
  struct Block {
    uint64_t offset = 0;
    absl::Span<char> memory;
  };
  enum class Answer : uint8_t { kTaken, kWait, kClosed };

  // Checks that the caller may speak for an incarnation. Errors: those of StreamGuard::CheckLife();
  // Unavailable (there is no shard).
  using LifeCheck = std::function<absl::Status(const messages::WorkerLife& life)>;

  static grpc::ServerBidiReactor<v1::SharedMemoryRequest, v1::SharedMemoryReply>* Start(
      std::shared_ptr<SharedMemoryRegions> regions, std::shared_ptr<StreamWatch> watch,
      std::shared_ptr<WorkerProcesses> processes, LifeCheck check_life);

  WorkerId worker() const { return worker_; }
  const storage::SharedRegion& region() const { return *region_; }
  int64_t block_bytes() const { return block_bytes_; }

  // Must be called when a pushed chunk has been copied, so that the worker may write there again.
  void MarkRead(uint64_t offset) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes a free block, which the caller must fill and send. If the result is kWait, no block is
  // free: `retry` will be called, without a lock held, when the caller should ask again. The worker
  // frees a block after it was sent. So a block that is not sent is never free again.
  Answer TakeBlock(Block& block, std::function<void()> retry) ABSL_LOCKS_EXCLUDED(mutex_);
  void Close(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCancel() override;
  void OnDone() override;
  void EndStalled(const absl::Status& status) override { Close(status); }

 private:
  SharedMemoryStream(std::shared_ptr<SharedMemoryRegions> regions,
                     std::shared_ptr<WorkerProcesses> processes, LifeCheck check_life);

  // Handles the first request.
  absl::Status Open() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status TakeGrants() ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes the next reply, or finishes the call if it is over. Does nothing while a write is under
  // way.
  void ContinueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<SharedMemoryRegions> regions_;
  const std::shared_ptr<WorkerProcesses> processes_;
  const LifeCheck check_life_;
  const uint64_t name_;
  std::shared_ptr<SharedMemoryStream> self_;  // set until OnDone()
  v1::SharedMemoryRequest request_;           // used by one callback at a time
  bool is_opening_ = false;                   // used by one callback at a time

  // The members below are set by the first request, and constant afterwards.
  WorkerId worker_;
  std::optional<storage::SharedRegion> region_;
  int64_t block_bytes_ = 0;

  absl::Mutex mutex_;
  std::vector<uint64_t> writable_ ABSL_GUARDED_BY(mutex_);  // offsets of free blocks
  std::vector<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  v1::SharedMemoryReply pending_ ABSL_GUARDED_BY(mutex_);
  v1::SharedMemoryReply writing_ ABSL_GUARDED_BY(mutex_);
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_removed_ ABSL_GUARDED_BY(mutex_) = false;  // its name is removed, so the call may end
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::rpc
