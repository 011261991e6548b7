// SPDX-License-Identifier: Apache-2.0

// BulkPushCall is one Push stream to one server. Buckets are sent one after the other. The checksum
// of a chunk is computed when the chunk before it has been written. Copies into shared memory and
// from devices run on the executor, a few chunks ahead of the writes. The caller must keep the call
// until it is done, and must destroy it on a thread that is not gRPC's.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/params/encoding.h"
#include "proto/chunk_codec.h"
#include "proto/parameter_service.pb.h"
#include "worker/client/bulk_connections.h"
#include "worker/client/device_payload.h"

namespace lodestar::client {

class BulkPushCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           public WatchedCall,
                           public std::enable_shared_from_this<BulkPushCall> {
 public:
  // Called once, on a gRPC thread, when the call is over. gRPC may still hold slices of the
  // caller's memory until the call is destroyed.
  using DoneCallback = std::function<void(absl::StatusOr<v1::PushReply>)>;

  // Starts a call. `header` has the fields that all chunks share. The call sets bucket, base
  // version, offset and checksum of each chunk. `encoding` must be the encoding in `header`. Every
  // chunk holds a reference to `memory_owner`.
  static std::shared_ptr<BulkPushCall> Start(BulkConnections* connections, int stream,
                                             wire::PushChunkHeader header,
                                             BlockRates learning_rates, params::Encoding encoding,
                                             std::shared_ptr<const void> memory_owner,
                                             DoneCallback done);

  void AddBucket(uint32_t bucket, Version base_version, absl::Span<const std::byte> data)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void AddDeviceBucket(uint32_t bucket, Version base_version, const DevicePayload& payload)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Says that no more buckets will be added.
  void EndOfBuckets() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the call soon. Thread-safe.
  void Cancel() { context_.TryCancel(); }
  // Returns the payload bytes that were added and not yet written. Thread-safe.
  size_t bytes_unsent() ABSL_LOCKS_EXCLUDED(mutex_);

  OwnCall Look() override ABSL_LOCKS_EXCLUDED(mutex_);
  void End(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone(const grpc::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // The part of a bucket that is not yet cut into chunks.
  struct Rest {
    uint32_t bucket = 0;
    Version base_version;
    absl::Span<const std::byte> data = {};
    // Used in place of `data` if `device` has a source.
    DevicePayload device = {};
    size_t begin = 0;  // Bytes that are cut already.

    size_t bytes() const {
      return device.source == nullptr ? data.size() : static_cast<size_t>(device.bytes);
    }
  };
  // The next chunk to cut from a bucket.
  struct Piece {
    // State of the bucket before this chunk is cut.
    Rest rest;
    size_t bytes = 0;
    // The block of shared memory for the chunk's data. Not set means that the data go into the
    // message.
    std::optional<SharedMemoryCall::Block> block = {};
  };
  struct Chunk {
    grpc::ByteBuffer message;
    size_t data_bytes = 0;
  };

  BulkPushCall(BulkConnections* connections, int stream, wire::PushChunkHeader header,
               BlockRates learning_rates, params::Encoding encoding,
               std::shared_ptr<const void> memory_owner, DoneCallback done);

  void Add(const Rest& rest) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sets `piece` to the next chunk to cut. Returns false if no chunk can be cut now, for example if
  // enough chunks wait to be written or no block is free. In that case is_cutting_ becomes false.
  bool TakePiece(Piece& piece) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes a block of shared memory for a chunk, if memory is shared. Returns false if all blocks
  // are used now. In that case cutting continues when a block is free.
  bool TakeBlockLocked(std::optional<SharedMemoryCall::Block>& block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the message that carries a chunk. Errors: those of a device.
  absl::StatusOr<grpc::ByteBuffer> Cut(const Piece& piece,
                                       const std::shared_ptr<const void>& memory_owner) const;
  // Returns the chunk's data in host memory, and fetches them from the device if needed.
  absl::StatusOr<absl::Span<const std::byte>> InHostMemory(const Piece& piece) const;
  // Copies the chunk's data into its block of shared memory. Returns their checksum.
  absl::StatusOr<uint32_t> FillBlock(const Piece& piece) const;
  bool IsDirect(const Piece& piece) const {
    return is_registered_ && piece.rest.device.source != nullptr && piece.block.has_value();
  }
  // Ends the call with `status`, because the contribution cannot be read from the device.
  void Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void CutChunks(const std::shared_ptr<const void>& memory_owner) ABSL_LOCKS_EXCLUDED(mutex_);
  // Cuts one chunk. The executor cuts the following chunks, because they may be in a device's
  // memory, and a gRPC thread must not wait for a device.
  void CutOne(const std::shared_ptr<const void>& memory_owner) ABSL_LOCKS_EXCLUDED(mutex_);
  void CutPiece(const Piece& piece, const std::shared_ptr<const void>& memory_owner)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns true if the next chunk needs only a checksum of the worker's memory. Then OnWriteDone()
  // cuts and writes the chunk on its own thread. So no other thread is woken, and the data are
  // still in the core's cache when the kernel copies them.
  bool CutsBetweenWritesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CanCutLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ScheduleCuttingLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<v1::PushReply> Result(const grpc::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::shared_ptr<BulkPushCall> self_;  // Set until OnDone().
  BulkConnections* const connections_;
  const int stream_;
  const std::shared_ptr<grpc::Channel> channel_;
  const wire::PushChunkHeader header_;
  const BlockRates learning_rates_;
  const params::Encoding encoding_;
  const size_t chunk_bytes_;  // Size of chunks in messages.
  DoneCallback done_;
  grpc::ClientContext context_;
  uint64_t number_ = 0;
  grpc::ByteBuffer reply_;
  const std::shared_ptr<SharedMemoryCall> shared_;  // May be null.
  const uint64_t region_;                           // The name of shared_.
  const bool is_registered_;                        // True if a device copies directly to shared_.

  absl::Mutex mutex_;
  std::shared_ptr<const void> memory_owner_ ABSL_GUARDED_BY(mutex_);
  std::deque<Rest> rests_ ABSL_GUARDED_BY(mutex_);
  std::deque<Chunk> chunks_ ABSL_GUARDED_BY(mutex_);
  Chunk writing_ ABSL_GUARDED_BY(mutex_);
  absl::Time write_began_at_ ABSL_GUARDED_BY(mutex_);  // Used by traces.
  uint64_t num_written_ ABSL_GUARDED_BY(mutex_) = 0;   // Chunks written.
  // The error with which the watchdog or a device ended the call.
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_added_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_written_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_cutting_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool no_more_buckets_ ABSL_GUARDED_BY(mutex_) = false;
  bool writes_done_ ABSL_GUARDED_BY(mutex_) = false;
  // True if the server has answered, the stream has broken, or the device has failed.
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_reply_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar::client
