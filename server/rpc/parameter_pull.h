// SPDX-License-Identifier: Apache-2.0

// A PullStream is one Pull stream. It reads one bucket after the other from the shard, cuts the
// published pages into chunks on the executor, and writes the chunks as fast as gRPC takes them.
// The stream owns itself until gRPC and all callbacks are done with it.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/runtime/executor.h"
#include "proto/bulk_options.h"
#include "proto/parameter_service.pb.h"
#include "server/rpc/bulk_calls.h"
#include "server/rpc/bulk_traffic.h"
#include "server/rpc/late_refusal.h"
#include "server/rpc/shared_memory_stream.h"
#include "server/rpc/stream_guard.h"
#include "server/rpc/stream_quota.h"
#include "server/shard/parameter_shard.h"

namespace lodestar::rpc {

class PullStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                         public WatchedStream,
                         public std::enable_shared_from_this<PullStream> {
 public:
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(
      absl::StatusOr<std::shared_ptr<shard::ParameterShard>> shard, Executor* executor,
      std::shared_ptr<TrafficCounters> traffic, std::shared_ptr<SharedMemoryRegions> regions,
      std::shared_ptr<BulkCall> call, const StreamGuard& guard,
      grpc::CallbackServerContext* context, const grpc::ByteBuffer& request);

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone() override ABSL_LOCKS_EXCLUDED(mutex_);
  void EndStalled(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Chunk {
    grpc::ByteBuffer message;
    size_t data_bytes = 0;
  };

  // A bucket that is being cut into chunks.
  struct Cutting {
    uint32_t bucket = 0;
    shard::PublishedBucket published;
    // Position of the next element to send. If there are changes, each change has num_elements
    // positions.
    int64_t begin = 0;
  };

  PullStream(Executor* executor, std::shared_ptr<TrafficCounters> traffic,
             std::shared_ptr<BulkCall> call, grpc::CallbackServerContext* context);

  // Checks the size of the request before it is parsed. A request stays in memory while its call is
  // held. So a request that is larger than any valid one is refused.
  absl::Status CheckSize(size_t request_bytes, const StreamGuard& guard) const;
  absl::Status Parse(const grpc::ByteBuffer& request, const SharedMemoryRegions& regions);
  // Checks that this caller may begin another stream, and takes a seat of StreamQuota for it.
  absl::Status Admit(const StreamGuard& guard);
  // Checks that the job uses the requested encoding.
  absl::Status CheckEncoding() const;
  void ReadNext() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnBucket(uint32_t bucket, absl::StatusOr<shard::PublishedBucket> published)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ScheduleCutting();
  // Cuts pages into chunks. Runs on the executor, because computing checksums on gRPC's threads
  // would delay the status service. If payloads are in the chunks, it stays only kChunksAhead
  // chunks ahead of the writes. So the bytes are still in the cache when gRPC sends them.
  void CutIntoChunks() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns false if no block of shared memory is free. Once a block is free, ScheduleCutting() is
  // called.
  bool CutChunk(Chunk& chunk);

  void Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void FailAfter(absl::Duration pause, const absl::Status& status);
  // Writes the next chunk, or finishes the call if it is over. Does nothing while a write is under
  // way.
  void ContinueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::shared_ptr<PullStream> self_;  // set until OnDone()
  std::unique_ptr<StreamQuota::Seat> seat_;
  limits::OriginPlaces::Place strangers_place_;  // null: the caller is a member
  std::shared_ptr<shard::ParameterShard> shard_;
  Executor* const executor_;
  const std::shared_ptr<TrafficCounters> traffic_;
  const std::shared_ptr<BulkCall> call_;
  v1::PullRequest request_;                 // constant once the stream has started
  size_t chunk_bytes_ = wire::kChunkBytes;  // payload bytes per message; constant as well
  // Shared memory for the payloads. If it is null, payloads go into the chunks. Only one task at a
  // time uses this member and cutting_.
  std::shared_ptr<SharedMemoryStream> shared_;
  Cutting cutting_;
  Pause pause_;  // pause before a refusal

  absl::Mutex mutex_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mutex_);  // null: the context is gone
  std::deque<Chunk> chunks_ ABSL_GUARDED_BY(mutex_);  // the first is being written if is_writing_
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_read_ ABSL_GUARDED_BY(mutex_) = 0;         // number of buckets whose read has begun
  bool is_reading_ ABSL_GUARDED_BY(mutex_) = false;  // a bucket is being read or cut into chunks
  // True: cutting has stopped before the end of cutting_, until the next write is done.
  bool has_rest_ ABSL_GUARDED_BY(mutex_) = false;
  shard::PendingCall waiting_ ABSL_GUARDED_BY(mutex_);
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::rpc
