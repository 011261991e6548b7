// A PullStream is one Pull stream. It asks the shard for one bucket after the other, cuts what the
// shard publishes into chunks on the executor, and writes them as gRPC takes them. Reading is ahead
// of writing by a few chunks. The stream owns itself until gRPC and all callbacks are done with it.
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
    int64_t begin = 0;  // of the rest, in elements; through all changes
  };

  PullStream(Executor* executor, std::shared_ptr<TrafficCounters> traffic,
             std::shared_ptr<BulkCall> call, grpc::CallbackServerContext* context);

  // The request is kept while the call is held. This checks, without reading it, that its size can
  // be that of a request to this shard.
  absl::Status CheckSize(size_t request_bytes, const StreamGuard& guard) const;
  absl::Status Parse(const grpc::ByteBuffer& request, const SharedMemoryRegions& regions);
  // Whether this caller may begin another stream. Takes its seat.
  absl::Status Admit(const StreamGuard& guard);
  // Whether the job has what is asked for.
  absl::Status CheckEncoding() const;
  void ReadNext() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnBucket(uint32_t bucket, absl::StatusOr<shard::PublishedBucket> published)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ScheduleCutting();
  // Runs on the executor: on gRPC's threads the sums of many readers' chunks would keep status
  // waiting. Where payloads are in the chunks, one chunk is cut while the one before is written. So
  // what has been summed is still in the cache when it is copied to the kernel.
  void CutIntoChunks() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns false if there is no shared memory for the chunk now; then ScheduleCutting() will be
  // called.
  bool CutChunk(Chunk& chunk);

  void Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void FailAfter(absl::Duration pause, const absl::Status& status);
  // Writes or finishes, whichever is due.
  void ContinueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::shared_ptr<PullStream> self_;  // until OnDone()
  std::unique_ptr<StreamQuota::Seat> seat_;
  limits::OriginPlaces::Place strangers_place_;  // null: of a member
  std::shared_ptr<shard::ParameterShard> shard_;
  Executor* const executor_;
  const std::shared_ptr<TrafficCounters> traffic_;
  const std::shared_ptr<BulkCall> call_;
  v1::PullRequest request_;                 // constant once the stream has started
  size_t chunk_bytes_ = wire::kChunkBytes;  // payload in messages; constant as well
  // Payloads go here. If it is null, they go into the chunks. Like cutting_, one task at a time
  // touches it.
  std::shared_ptr<SharedMemoryStream> shared_;
  Cutting cutting_;
  Pause pause_;  // before a refusal

  absl::Mutex mutex_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mutex_);  // null: it is gone
  std::deque<Chunk> chunks_ ABSL_GUARDED_BY(mutex_);  // the first is being written if is_writing_
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_read_ ABSL_GUARDED_BY(mutex_) = 0;         // buckets asked for, and being asked for
  bool is_reading_ ABSL_GUARDED_BY(mutex_) = false;  // from the question to the last chunk's end
  bool has_rest_ ABSL_GUARDED_BY(mutex_) = false;    // cutting_ has one, and no task cuts it
  shard::PendingCall waiting_ ABSL_GUARDED_BY(mutex_);
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::rpc
