// BulkPushCall is one Push stream to one server. Buckets go out one after the other. The checksum
// of a chunk is computed when the chunk before is written. Copies into shared memory and from
// devices are made on the executor, a few chunks ahead of the wire. The caller keeps the call until
// it is done, and destroys it on a thread that is not gRPC's.
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
  // Called once, on a gRPC thread, when nothing of the call will happen any more. Only slices may
  // live until the call is destroyed.
  using DoneCallback = std::function<void(absl::StatusOr<v1::PushReply>)>;

  // Starts a call. `header` is that of every chunk, except for bucket, base version, offset and
  // checksum. Chunks hold `memory_owner`. `encoding` is the header's.
  static std::shared_ptr<BulkPushCall> Start(BulkConnections* connections, int stream,
                                             wire::PushChunkHeader header, Encoding encoding,
                                             std::shared_ptr<const void> memory_owner,
                                             DoneCallback done);

  void AddBucket(uint32_t bucket, Version base_version, absl::Span<const std::byte> data)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void AddDeviceBucket(uint32_t bucket, Version base_version, const DevicePayload& payload)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells that no bucket will be added any more.
  void EndOfBuckets() ABSL_LOCKS_EXCLUDED(mutex_);
  // Thread-safe.
  void Cancel() { context_.TryCancel(); }
  // Returns the payload that has been added and that gRPC has not taken. Thread-safe.
  size_t bytes_unsent() ABSL_LOCKS_EXCLUDED(mutex_);

  OwnCall Look() override ABSL_LOCKS_EXCLUDED(mutex_);
  void End(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone(const grpc::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // What is left of a bucket to cut into chunks.
  struct Rest {
    uint32_t bucket = 0;
    Version base_version;
    absl::Span<const std::byte> data = {};
    DevicePayload device = {};  // used in place of data, if it has a source
    size_t begin = 0;           // bytes cut so far

    size_t bytes() const {
      return device.source == nullptr ? data.size() : static_cast<size_t>(device.bytes);
    }
  };
  // A chunk to cut.
  struct Piece {
    Rest rest;  // as it was before
    size_t bytes = 0;
    std::optional<SharedMemoryCall::Block> block = {};  // where to put it, if not into the message
  };
  struct Chunk {
    grpc::ByteBuffer message;
    size_t data_bytes = 0;
  };

  BulkPushCall(BulkConnections* connections, int stream, wire::PushChunkHeader header,
               Encoding encoding, std::shared_ptr<const void> memory_owner, DoneCallback done);

  void Add(const Rest& rest) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes the next chunk to cut, if it is time for one. Otherwise returns false and ends the
  // cutting.
  bool TakePiece(Piece& piece) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns false if there is no shared memory for a chunk now. Cutting will go on when there is.
  bool TakeBlockLocked(std::optional<SharedMemoryCall::Block>& block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes a message of the piece. Errors: those of a device.
  absl::StatusOr<grpc::ByteBuffer> Cut(const Piece& piece,
                                       const std::shared_ptr<const void>& memory_owner) const;
  // Returns the piece's bytes, in host memory.
  absl::StatusOr<absl::Span<const std::byte>> InHostMemory(const Piece& piece) const;
  // Puts the piece's bytes into its block, and returns their checksum.
  absl::StatusOr<uint32_t> FillBlock(const Piece& piece) const;
  bool IsDirect(const Piece& piece) const {
    return is_registered_ && piece.rest.device.source != nullptr && piece.block.has_value();
  }
  // Ends the call with `status`, because the contribution cannot be read.
  void Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void CutChunks(const std::shared_ptr<const void>& memory_owner) ABSL_LOCKS_EXCLUDED(mutex_);
  // Cuts one chunk. The executor cuts the rest, because what follows may be a device's, and gRPC's
  // threads do not wait for a device.
  void CutOne(const std::shared_ptr<const void>& memory_owner) ABSL_LOCKS_EXCLUDED(mutex_);
  void CutPiece(const Piece& piece, const std::shared_ptr<const void>& memory_owner)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns true if the next chunk only takes a checksum of the worker's memory. Then the thread
  // that has written a chunk cuts the next chunk and writes it. So no thread is woken per chunk,
  // and the bytes of the checksum are in the cache of the core that copies them to the kernel.
  bool CutsBetweenWritesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CanCutLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ScheduleCuttingLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<v1::PushReply> Result(const grpc::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::shared_ptr<BulkPushCall> self_;  // set until OnDone()
  BulkConnections* const connections_;
  const int stream_;
  const std::shared_ptr<grpc::Channel> channel_;
  const wire::PushChunkHeader header_;
  const Encoding encoding_;
  const size_t chunk_bytes_;  // in messages
  DoneCallback done_;
  grpc::ClientContext context_;
  uint64_t number_ = 0;
  grpc::ByteBuffer reply_;
  const std::shared_ptr<SharedMemoryCall> shared_;  // or null
  const uint64_t region_;                           // the name of shared_
  const bool is_registered_;                        // true if a device copies straight to it

  absl::Mutex mutex_;
  std::shared_ptr<const void> memory_owner_ ABSL_GUARDED_BY(mutex_);
  std::deque<Rest> rests_ ABSL_GUARDED_BY(mutex_);
  std::deque<Chunk> chunks_ ABSL_GUARDED_BY(mutex_);
  Chunk writing_ ABSL_GUARDED_BY(mutex_);
  absl::Time write_began_at_ ABSL_GUARDED_BY(mutex_);  // for traces
  uint64_t num_written_ ABSL_GUARDED_BY(mutex_) = 0;   // chunks
  // The error with which the watchdog or a device ended the call.
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_added_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_written_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_cutting_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool no_more_buckets_ ABSL_GUARDED_BY(mutex_) = false;
  bool writes_done_ ABSL_GUARDED_BY(mutex_) = false;
  // True if the server has answered, the stream broke, or the device failed.
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_reply_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar::client
