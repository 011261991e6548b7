// BulkPullCall is one Pull stream from one server. It asks for buckets, copies what arrives
// straight to where it belongs, and checks it in the same pass. The caller keeps the call until it
// is done, and destroys it on a thread that is not gRPC's.
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
    // A bucket has arrived whole and is as it was sent; called on a gRPC thread before `done`.
    std::function<void(const PulledBucket&)> arrived;
    // Payload has come on the connection; called on a gRPC thread.
    std::function<void(size_t bytes)> received;
    // Called once, on a gRPC thread, when no destination will be written any more.
    std::function<void(const absl::Status&)> done;
  };

  // Says which way the payload comes. kBest is through shared memory, if there is some; kConnection
  // is on the connection.
  enum class Path : uint8_t { kBest, kConnection };

  // Starts a call. The targets in `spec` are those of one stream, in the order wanted.
  static std::shared_ptr<BulkPullCall> Start(BulkConnections* connections, int stream, Path path,
                                             PullSpec spec, Callbacks callbacks);

  // Thread-safe.
  void Cancel() { context_.TryCancel(); }

  OwnCall Look() override;
  void End(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  BulkPullCall(BulkConnections* connections, int stream, Path path, PullSpec spec,
               Callbacks callbacks);

  // Takes the chunk in message_.
  absl::Status TakeChunk();
  // Checks that the chunk is of a version and in a form that was asked for.
  absl::Status CheckKind(const wire::PullChunkHeader& header) const;
  // Returns where the data of the chunk belong. Errors: DataLoss if they are not the next data.
  absl::StatusOr<absl::Span<std::byte>> PlaceOf(const wire::PullChunkHeader& header,
                                                size_t data_bytes) const;
  // Copies the chunk's data to where they belong, and checks them.
  absl::Status CopyData(wire::PullChunkReader& reader, absl::Span<std::byte> place);
  absl::StatusOr<uint32_t> ReadData(wire::PullChunkReader& reader,
                                    absl::Span<std::byte> place) const;
  // Returns true if the bucket of the chunk goes to a device.
  bool GoesToDevice(const wire::PullChunkHeader& header) const;
  // Copies the chunk's data to the device. Data that came in the message go by way of `place`.
  // Returns the checksum of the data, by which the caller decides whether they have arrived. The
  // copy is made before that, because a bucket is not read before all of it has arrived. Errors: as
  // ReadData(); those of the device.
  absl::StatusOr<uint32_t> CopyToDevice(wire::PullChunkReader& reader, absl::Span<std::byte> place);

  std::shared_ptr<BulkPullCall> self_;  // set until OnDone()
  BulkConnections* const connections_;
  const int stream_;
  const std::shared_ptr<grpc::Channel> channel_;
  const Round min_round_;
  const Encoding encoding_;
  const std::vector<PullTarget> targets_;
  const bool is_long_;  // see kLongPullBytes
  Callbacks callbacks_;
  grpc::ClientContext context_;
  uint64_t number_ = 0;
  std::atomic<uint64_t> bytes_received_ = 0;
  absl::Mutex mutex_;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);  // the error with which the watchdog ended the call
  grpc::ByteBuffer request_;
  const std::shared_ptr<SharedMemoryCall> shared_;  // or null
  const uint64_t region_;                           // the name of shared_
  const bool is_registered_;                        // true if a device copies straight from it

  // Touched by one gRPC callback at a time.
  grpc::ByteBuffer message_;
  size_t num_arrived_ = 0;   // targets
  size_t received_ = 0;      // bytes of the target that is arriving
  Version version_;          // of its first chunk
  int64_t num_changes_ = 0;  // of its first chunk; 0 means that the bucket comes whole
  absl::Status status_;
};

}  // namespace lodestar::client
