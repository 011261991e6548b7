// SPDX-License-Identifier: Apache-2.0

// A PushStream is one Push stream. For each bucket its read side goes through these states:
//
// - It reads the first chunk of the bucket.
// - It waits until the shard lends space for the bucket.
// - It reads the other chunks.
// - It hands the bucket over to the shard, and reads the next bucket meanwhile.
//
// The stream ends after the first error. Without an error it ends once the client has ended it and
// the shard has counted every bucket. The stream owns itself until gRPC and all callbacks are done
// with it.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/chunk_codec.h"
#include "proto/parameter_service.pb.h"
#include "server/rpc/bulk_calls.h"
#include "server/rpc/bulk_traffic.h"
#include "server/rpc/shared_memory_stream.h"
#include "server/rpc/stream_guard.h"
#include "server/shard/parameter_shard.h"

namespace lodestar::rpc {

class PushStream final : public grpc::ServerReadReactor<grpc::ByteBuffer>,
                         public WatchedStream,
                         public std::enable_shared_from_this<PushStream> {
 public:
  // Starts a stream. `reply` belongs to gRPC and is filled before the stream finishes.
  static grpc::ServerReadReactor<grpc::ByteBuffer>* Start(
      absl::StatusOr<std::shared_ptr<shard::ParameterShard>> shard,
      std::shared_ptr<TrafficCounters> traffic, std::shared_ptr<SharedMemoryRegions> regions,
      std::shared_ptr<BulkCall> call, StreamGuard guard, grpc::ByteBuffer* reply);

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone() override;
  void EndStalled(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_) { Fail(status); }
  void OnLook(absl::Duration awaited) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A bucket whose chunks are arriving.
  struct Incoming {
    shard::StagedBucket staged;
    wire::PushChunkHeader first;  // header of its first chunk
    int64_t received = 0;         // number of elements that have arrived
  };

  PushStream(std::shared_ptr<TrafficCounters> traffic, std::shared_ptr<SharedMemoryRegions> regions,
             std::shared_ptr<BulkCall> call, StreamGuard guard, grpc::ByteBuffer* reply);

  // Takes a seat of StreamQuota for the worker, unless the stream already has one.
  absl::Status TakeSeat(const messages::WorkerLife& life);

  void BeginBucket() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnSpace(absl::StatusOr<shard::StagedBucket> staged) ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeChunk() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status ReadHeader();
  absl::Status CopyChunk();
  // Returns the error for chunks that do not follow one another. It is DataLoss if the client sends
  // checksums, because then a chunk was lost on its way. Otherwise it is InvalidArgument.
  template <typename... Text>
  absl::Status BrokenOrder(const wire::PushChunkHeader& header, const Text&... text) const;
  absl::Status CheckContinues() const;
  // Checks that the stream may keep the space of its bucket. Errors: Aborted (the worker's
  // incarnation is over).
  absl::Status CheckKeepsSpace() const;
  void HandOver() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCounted(uint32_t bucket, const absl::StatusOr<shard::PushOutcome>& outcome)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnClientDone() ABSL_LOCKS_EXCLUDED(mutex_);

  void ReadNext() ABSL_LOCKS_EXCLUDED(mutex_);
  void Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void FinishLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::shared_ptr<PushStream> self_;  // set until OnDone()
  std::shared_ptr<shard::ParameterShard> shard_;
  const std::shared_ptr<TrafficCounters> traffic_;
  const std::shared_ptr<SharedMemoryRegions> regions_;
  const std::shared_ptr<BulkCall> call_;
  const StreamGuard guard_;
  grpc::ByteBuffer* const reply_;

  // The members below belong to the read side. They need no lock, because only one callback of the
  // read side runs at a time.
  grpc::ByteBuffer message_;
  std::optional<wire::PushChunkReader> reader_;
  // Shared memory that has the payload of the chunk in reader_. Null means that the payload is in
  // the message.
  std::shared_ptr<SharedMemoryStream> shared_;
  std::optional<Incoming> incoming_;
  std::unique_ptr<StreamQuota::Seat> seat_;
  StreamQuota::Caller caller_ = StreamQuota::Caller::kStranger;  // kind of caller that holds seat_
  // Place in StreamGuard::strangers. Set if the caller is not known as a member.
  limits::OriginPlaces::Place strangers_place_;
  bool gives_checksums_ = false;  // true: a header of this stream came with a checksum
  // The last incarnation that the caller was allowed to speak for.
  messages::WorkerLife speaker_;

  absl::Mutex mutex_;
  shard::PendingCall waiting_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_begun_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time begun_at_ ABSL_GUARDED_BY(mutex_);  // when the last bucket began to wait for space
  absl::Duration held_ ABSL_GUARDED_BY(mutex_);  // total time that buckets waited for space
  absl::Time held_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int num_uncounted_ ABSL_GUARDED_BY(mutex_) = 0;  // buckets that the shard has not counted yet
  bool client_done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time received_at_ ABSL_GUARDED_BY(mutex_);  // when everything had arrived, if client_done_
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  // Time for which no bytes of the present bucket have arrived. Null means that no bucket is
  // arriving.
  std::shared_ptr<shard::PushSilence> silence_ ABSL_GUARDED_BY(mutex_);
  absl::Duration silent_for_ ABSL_GUARDED_BY(mutex_);
  uint64_t silent_from_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes when silence began
  v1::PushReply result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::rpc
