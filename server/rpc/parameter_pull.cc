// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/parameter_pull.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/crc32c/crc32c.h"
#include "common/params/bucket_plan.h"
#include "common/params/encoding.h"
#include "common/runtime/status_macros.h"
#include "proto/bulk_options.h"
#include "proto/chunk_codec.h"
#include "proto/convert.h"
#include "proto/status_mapping.h"

namespace lodestar::rpc {
namespace {

// A PullRequest has at most kPullRequestBytes, plus kBytesPerBucket for each bucket in it.
constexpr size_t kPullRequestBytes = 4 << 10;
constexpr size_t kBytesPerBucket = 24;
// Maximum number of bytes that wait to be written to the client. Only references to pages are
// queued.
constexpr size_t kReadAheadBytes = 4 * wire::kChunkBytes;
// Maximum number of chunks that wait while another chunk is written. It holds if payloads are sent
// within the messages.
constexpr size_t kChunksAhead = 1;

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* PullStream::Start(
    absl::StatusOr<std::shared_ptr<shard::ParameterShard>> shard, Executor* executor,
    std::shared_ptr<TrafficCounters> traffic, std::shared_ptr<SharedMemoryRegions> regions,
    std::shared_ptr<BulkCall> call, const StreamGuard& guard, grpc::CallbackServerContext* context,
    const grpc::ByteBuffer& request) {
  std::shared_ptr<PullStream> stream(
      new PullStream(executor, std::move(traffic), std::move(call), context));
  stream->self_ = stream;
  guard.watch->Add(std::weak_ptr<WatchedStream>(stream));
  if (!shard.ok()) {
    stream->Fail(shard.status());
    return stream.get();
  }
  stream->shard_ = *std::move(shard);
  if (absl::Status status = stream->CheckSize(request.Length(), guard); !status.ok()) {
    stream->FailAfter(guard.refusal_pause, status);
  } else if (status = stream->Parse(request, *regions); !status.ok()) {
    stream->Fail(status);
  } else {
    if (absl::Status status = stream->Admit(guard); !status.ok()) {
      // Unauthenticated means that the caller may not speak for the incarnation in its request.
      // This error is sent after a pause, which limits how often a caller can repeat the call.
      const bool is_late = absl::IsUnauthenticated(status);
      stream->FailAfter(is_late ? guard.refusal_pause : absl::ZeroDuration(), status);
    } else if (status = stream->CheckEncoding(); !status.ok()) {
      stream->Fail(status);
    } else {
      stream->ReadNext();
    }
  }
  return stream.get();
}

PullStream::PullStream(Executor* executor, std::shared_ptr<TrafficCounters> traffic,
                       std::shared_ptr<BulkCall> call, grpc::CallbackServerContext* context)
    : executor_(executor),
      traffic_(std::move(traffic)),
      call_(std::move(call)),
      context_(context) {}

absl::Status PullStream::CheckSize(size_t request_bytes, const StreamGuard& guard) const {
  const size_t most = kPullRequestBytes + kBytesPerBucket * shard_->num_buckets();
  if (request_bytes <= most) return absl::OkStatus();
  guard.refusals->Count(limits::LimitReached::kPullRequests);
  // Aborted makes the worker register again. It then learns the new buckets, if the servers have
  // begun anew with fewer of them.
  return absl::AbortedError(absl::StrCat(
      "pull: the request has ", request_bytes, " bytes, but for the ", shard_->num_buckets(),
      " buckets of this server it needs at most ", most, "; register again"));
}

absl::Status PullStream::Parse(const grpc::ByteBuffer& request,
                               const SharedMemoryRegions& regions) {
  if (request.Length() == 0) {
    return absl::DataLossError(
        "pull: the request is empty, so it was damaged on its way; send it again");
  }
  grpc::ByteBuffer message(request);
  const grpc::Status parsed =
      grpc::SerializationTraits<v1::PullRequest>::Deserialize(&message, &request_);
  if (!parsed.ok()) {
    return absl::DataLossError(
        "pull: the request was damaged on its way, and is not a valid PullRequest; send it again");
  }
  if (request_.crc32c() != 0 && request_.crc32c() != wire::ChecksumOf(request_)) {
    return absl::DataLossError("pull: the request was damaged on its way; send it again");
  }
  if (absl::StatusOr<params::Encoding::Kind> encoding = wire::FromProto(request_.encoding());
      !encoding.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("pull: ", encoding.status().message()));
  }
  if (request_.held_versions_size() != 0 &&
      request_.held_versions_size() != request_.buckets_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pull: ", request_.buckets_size(), " buckets and ", request_.held_versions_size(),
        " held versions; give one version per bucket, or none"));
  }
  if (request_.min_round() < 0 || request_.buckets_size() > params::kMaxBuckets) {
    return absl::InvalidArgumentError(
        absl::StrCat("pull: the request has ", request_.buckets_size(), " buckets and min_round ",
                     request_.min_round(), ". Allowed are at most ", params::kMaxBuckets,
                     " buckets, and min_round must be 0 or more"));
  }
  if (request_.max_chunk_bytes() != 0) {
    if (request_.max_chunk_bytes() < wire::kMinChunkLimitBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("pull: max_chunk_bytes is ", request_.max_chunk_bytes(),
                       "; it must be at least ", wire::kMinChunkLimitBytes, ", or 0 for no limit"));
    }
    chunk_bytes_ = std::min<size_t>(chunk_bytes_, request_.max_chunk_bytes());
  }
  if (request_.shared_region() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(shared_, regions.Find(request_.shared_region(), WorkerId(request_.worker_id())));
  return absl::OkStatus();
}

absl::Status PullStream::Admit(const StreamGuard& guard) {
  const WorkerId worker(request_.worker_id());
  const Incarnation incarnation(request_.incarnation());
  bool is_member = false;
  if (worker != WorkerId()) {
    RETURN_IF_ERROR(guard.CheckLife(*shard_, {worker, incarnation}));
    is_member = shard_->IsAnnounced(worker, incarnation);
  } else {
    if (guard.export_key == 0 || request_.incarnation() != guard.export_key) {
      return absl::InvalidArgumentError(
          "pull: worker_id and incarnation are missing; use the values in the reply to the "
          "registration");
    }
    is_member = true;
  }
  if (request_.buckets_size() > shard_->num_buckets()) {
    guard.refusals->Count(limits::LimitReached::kPullRequests);
    return shard_->RefusalFor(
        worker, incarnation,
        absl::InvalidArgumentError(absl::StrCat(
            "pull: ", request_.buckets_size(), " buckets are asked for, but this server has ",
            shard_->num_buckets(), "; ask for each bucket once")));
  }
  if (!is_member) {
    ASSIGN_OR_RETURN(strangers_place_, guard.TakeStrangersPlace());
  }
  absl::StatusOr<std::unique_ptr<StreamQuota::Seat>> seat = guard.quota->Take(
      worker, is_member ? StreamQuota::Caller::kMember : StreamQuota::Caller::kStranger);
  if (!seat.ok()) guard.refusals->Count(limits::LimitReached::kStreams);
  ASSIGN_OR_RETURN(seat_, std::move(seat));
  return absl::OkStatus();
}

absl::Status PullStream::CheckEncoding() const {
  const params::Encoding wanted = shard_->pull_encoding();
  if (request_.encoding() == v1::ENCODING_FP32 ||
      request_.encoding() == wire::ToProto(wanted.kind())) {
    return absl::OkStatus();
  }
  return shard_->RefusalFor(WorkerId(request_.worker_id()), Incarnation(request_.incarnation()),
                            absl::InvalidArgumentError(absl::StrCat(
                                "pull: the request asks for ",
                                params::EncodingKindName(*wire::FromProto(request_.encoding())),
                                ", but this job has fp32 and ", params::EncodingName(wanted),
                                "; use the pull_encoding in the reply to the registration")));
}

void PullStream::ReadNext() {
  uint32_t bucket;
  shard::ReadView view;
  int ordinal;
  {
    absl::MutexLock lock(&mutex_);
    if (finished_ || !status_.ok()) return;
    if (num_read_ == request_.buckets_size()) return ContinueLocked();
    if (is_reading_ || queued_bytes_ >= kReadAheadBytes) return;
    is_reading_ = true;
    bucket = request_.buckets(num_read_);
    view.shadow = request_.encoding() != v1::ENCODING_FP32;
    view.state_vector = request_.state_vector();
    if (num_read_ < request_.held_versions_size() && request_.held_versions(num_read_) >= 0) {
      view.held = Version(request_.held_versions(num_read_));
    }
    ordinal = ++num_read_;
  }
  shard::PendingCall call = shard_->ReadBucket(
      WorkerId(request_.worker_id()), Incarnation(request_.incarnation()), bucket,
      Round(request_.min_round()),
      [self = shared_from_this(), bucket](absl::StatusOr<shard::PublishedBucket> published) {
        self->OnBucket(bucket, std::move(published));
      },
      view);
  absl::MutexLock lock(&mutex_);
  // OnBucket() may have run before this line, and the read of the next bucket may have begun. If
  // so, `waiting_` already belongs to that next read.
  if (num_read_ == ordinal) waiting_ = call;
  if (!status_.ok()) call.Cancel();
}

void PullStream::OnBucket(uint32_t bucket, absl::StatusOr<shard::PublishedBucket> published) {
  if (!published.ok()) return Fail(published.status());
  cutting_ = {bucket, *std::move(published)};
  ScheduleCutting();
}

void PullStream::ScheduleCutting() {
  executor_->Schedule([self = shared_from_this()] { self->CutIntoChunks(); });
}

bool PullStream::CutChunk(Chunk& chunk) {
  SharedMemoryStream::Block block;
  if (shared_ != nullptr) {
    switch (shared_->TakeBlock(block, [self = shared_from_this()] { self->ScheduleCutting(); })) {
      case SharedMemoryStream::Answer::kTaken:
        break;
      case SharedMemoryStream::Answer::kWait:
        return false;
      case SharedMemoryStream::Answer::kClosed:
        shared_ = nullptr;
        break;
    }
  }
  const size_t chunk_bytes = shared_ == nullptr ? chunk_bytes_ : block.memory.size();
  const shard::PublishedBucket& published = cutting_.published;
  const params::Encoding encoding = published.encoding;
  // Index in `changes` of the change to send from. It is 0 if there are no changes.
  const int64_t part = cutting_.begin / published.num_elements;
  const int64_t begin = cutting_.begin % published.num_elements;
  const std::shared_ptr<const shard::Page>& page =
      published.changes.empty() ? published.page : published.changes[part];
  const int64_t size = std::min(params::ChunkElements(encoding, static_cast<int64_t>(chunk_bytes)),
                                published.num_elements - begin);
  const std::byte* const data =
      reinterpret_cast<const std::byte*>(page->data()) + params::EncodedBytes(encoding, begin);
  chunk.data_bytes = params::EncodedBytes(encoding, size);
  wire::PullChunkHeader header{cutting_.bucket, published.version,
                               static_cast<uint64_t>(cutting_.begin),
                               wire::ToProto(encoding.kind())};
  if (!published.changes.empty()) {
    header.base_version =
        Version(published.version.value() - static_cast<int64_t>(published.changes.size()));
  }
  if (shared_ == nullptr) {
    header.crc32c = page->Crc32cOf(params::EncodedBytes(encoding, begin), chunk.data_bytes);
    chunk.message = wire::EncodePullChunk(header, data, chunk.data_bytes, page);
  } else {
    header.crc32c = crc32c::Crc32cCopy(block.memory.data(), data, chunk.data_bytes);
    header.place = {request_.shared_region(), block.offset, chunk.data_bytes};
    chunk.message = wire::EncodePullChunk(header);
  }
  cutting_.begin += size;
  return true;
}

void PullStream::CutIntoChunks() {
  const int64_t num_parts =
      std::max<int64_t>(1, static_cast<int64_t>(cutting_.published.changes.size()));
  const int64_t end = num_parts * cutting_.published.num_elements;
  for (bool is_last = false; !is_last;) {
    {
      absl::MutexLock lock(&mutex_);
      if (finished_) return;
      has_rest_ = shared_ == nullptr && chunks_.size() > kChunksAhead;
      if (has_rest_) return;
    }
    Chunk chunk;
    if (!CutChunk(chunk)) return;
    is_last = cutting_.begin == end;
    if (is_last) cutting_.published = {};
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    queued_bytes_ += chunk.data_bytes;
    chunks_.push_back(std::move(chunk));
    if (is_last) is_reading_ = false;
    ContinueLocked();
  }
  ReadNext();
}

void PullStream::ContinueLocked() {
  if (finished_ || is_writing_) return;
  if (!status_.ok()) {
    finished_ = true;
    chunks_.clear();
    return Finish(wire::ToGrpcStatus(status_));
  }
  if (!chunks_.empty()) {
    is_writing_ = true;
    grpc::WriteOptions options;
    // With the hint, gRPC waits for more chunks before it sends. Without it, gRPC sends at once.
    if (chunks_.size() > 1) options.set_buffer_hint();
    call_->set_phase(v1::CallState::PHASE_SENDING);
    AwaitPeer();
    return StartWrite(&chunks_.front().message, options);
  }
  if (num_read_ == request_.buckets_size() && !is_reading_) {
    finished_ = true;
    Finish(grpc::Status::OK);
  }
}

void PullStream::OnWriteDone(bool ok) {
  bool cuts = false;
  {
    absl::MutexLock lock(&mutex_);
    is_writing_ = false;
    StopAwaitingPeer();
    call_->set_phase(v1::CallState::PHASE_HELD);
    call_->AddBytes(chunks_.front().data_bytes);
    if (ok) {
      queued_bytes_ -= chunks_.front().data_bytes;
      traffic_->bytes_sent.fetch_add(chunks_.front().data_bytes, std::memory_order_relaxed);
    } else if (status_.ok()) {
      status_ = absl::CancelledError("the client is gone");
    }
    chunks_.pop_front();
    ContinueLocked();
    cuts = std::exchange(has_rest_, false);
  }
  if (cuts) return ScheduleCutting();
  ReadNext();
}

void PullStream::OnCancel() {
  pause_.Cut();
  Fail(absl::CancelledError("the client is gone"));
}

void PullStream::EndStalled(const absl::Status& status) {
  Fail(status);
  // The client does not read, so the write under way would never end. Cancelling the call ends it.
  absl::MutexLock lock(&mutex_);
  if (context_ != nullptr) context_->TryCancel();
}

void PullStream::OnDone() {
  {
    absl::MutexLock lock(&mutex_);
    context_ = nullptr;
  }
  call_->End();
  strangers_place_.reset();
  seat_.reset();
  self_.reset();
}

void PullStream::FailAfter(absl::Duration pause, const absl::Status& status) {
  if (pause == absl::ZeroDuration()) return Fail(status);
  // The function has only a weak pointer. `pause_` is a member of the stream and keeps the
  // function, so a shared pointer would keep the stream alive for ever.
  pause_.Start(pause, [weak = weak_from_this(), status] {
    if (const std::shared_ptr<PullStream> stream = weak.lock(); stream != nullptr) {
      stream->Fail(status);
    }
  });
}

void PullStream::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (status_.ok()) status_ = status;
  waiting_.Cancel();
  ContinueLocked();
}

}  // namespace lodestar::rpc
