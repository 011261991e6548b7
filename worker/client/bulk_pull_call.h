// SPDX-License-Identifier: Apache-2.0

// BulkPullCall is one Pull stream from one server. It asks for buckets. It copies arriving
// bytes straight to their destination, and computes their checksum at the same time. The caller
// must keep the call until it is done, and must destroy it on a thread that is not gRPC's.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "proto/chunk_codec.h"
#include "worker/client/bulk_connections.h"

namespace lodestar::client {

class BulkPullCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           public WatchedCall,
                           public std::enable_shared_from_this<BulkPullCall> {
 public:
  struct Callbacks {
    // Called on a gRPC thread when a bucket has arrived whole and verified, before `done`.
    std::function<void(const PulledBucket&)> arrived;
    // Called on a gRPC thread when payload has arrived over the connection.
    std::function<void(size_t bytes)> received;
    // Called once, on a gRPC thread, when no destination will be written any more.
    std::function<void(const absl::Status&)> done;
  };

  // The path of the payload. kBest uses shared memory if memory is shared with the server.
  // kConnection always uses the connection.
  enum class Path : uint8_t { kBest, kConnection };

  // Starts a call. All targets in `spec` must belong to this stream. They arrive in the order
  // given.
  static std::shared_ptr<BulkPullCall> Start(BulkConnections* connections, int stream, Path path,
                                             PullSpec spec, Callbacks callbacks);

  // Ends the call soon. Thread-safe.
  void Cancel() { context_.TryCancel(); }

  OwnCall Look() override;
  void End(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  BulkPullCall(BulkConnections* connections, int stream, Path path, PullSpec spec,
               Callbacks callbacks);

  // Handles the chunk in message_.
  absl::Status TakeChunk();
  // Checks the chunk's version and encoding against the request. Errors: DataLoss.
  absl::Status CheckKind(const wire::PullChunkHeader& header) const;
  // Returns the destination of the chunk's data. Errors: DataLoss if the chunk is not the next one.
  absl::StatusOr<absl::Span<std::byte>> PlaceOf(const wire::PullChunkHeader& header,
                                                size_t data_bytes) const;
  // Copies the chunk's data to their destination and checks their checksum.
  absl::Status CopyData(wire::PullChunkReader& reader, absl::Span<std::byte> place);
  absl::StatusOr<uint32_t> ReadData(wire::PullChunkReader& reader,
                                    absl::Span<std::byte> place) const;
  // Returns true if the bucket of the chunk goes to a device.
  bool GoesToDevice(const wire::PullChunkHeader& header) const;
  // Copies the chunk's data to the device. Data that came in the message are copied to `place`
  // first. Returns the checksum of the data, which the caller must check. Errors: those of
  // ReadData() and of the device.
  absl::StatusOr<uint32_t> CopyToDevice(wire::PullChunkReader& reader, absl::Span<std::byte> place);

  std::shared_ptr<BulkPullCall> self_;  // Set until OnDone().
  BulkConnections* const connections_;
  const int stream_;
  const std::shared_ptr<grpc::Channel> channel_;
  const Round min_round_;
  const params::Encoding encoding_;
  const std::vector<PullTarget> targets_;
  const bool is_long_;  // See kLongPullBytes.
  Callbacks callbacks_;
  grpc::ClientContext context_;
  uint64_t number_ = 0;
  std::atomic<uint64_t> bytes_received_ = 0;
  absl::Mutex mutex_;
  // The error with which the watchdog has ended the call.
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  grpc::ByteBuffer request_;
  const std::shared_ptr<SharedMemoryCall> shared_;  // May be null.
  const uint64_t region_;                           // The name of shared_.
  // True if a device can copy directly from the shared memory of shared_.
  const bool is_registered_;

  // Used by one gRPC callback at a time.
  grpc::ByteBuffer message_;
  // Number of targets that have arrived.
  size_t num_arrived_ = 0;
  // Bytes of the present target that have arrived.
  size_t received_ = 0;
  Version version_;  // The version in the first chunk of the present target.
  // The number of changes in the present target. 0 means that the bucket comes whole.
  int64_t num_changes_ = 0;
  absl::Status status_;
};

}  // namespace lodestar::client
