#include "worker/client/bulk_push_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crc32c.h"
#include "proto/status_mapping.h"

namespace lodestar {
namespace {

// How far checksums are ahead of the wire. Far enough that the wire never waits, near enough that
// the data is still in the cache when the kernel copies it.
constexpr size_t kChunksAhead = 4;

}  // namespace

std::shared_ptr<BulkPushCall> BulkPushCall::Start(BulkConnections* connections, int stream,
                                                  PushChunkHeader header, Encoding encoding,
                                                  std::shared_ptr<const void> memory_owner,
                                                  DoneCallback done) {
  std::shared_ptr<BulkPushCall> call(new BulkPushCall(connections, stream, header, encoding,
                                                      std::move(memory_owner), std::move(done)));
  call->self_ = call;
  call->number_ = connections->BeginCall(stream, call, call->context_);
  connections->stub(stream).PrepareBidiStreamingCall(
      &call->context_, "/lodestar.v1.ParameterService/Push", grpc::StubOptions(), call.get());
  // Writes start outside of gRPC's callbacks; the hold keeps the call until OnReadDone().
  call->AddHold();
  call->StartRead(&call->reply_);
  call->StartCall();
  return call;
}

BulkPushCall::BulkPushCall(BulkConnections* connections, int stream, PushChunkHeader header,
                           Encoding encoding, std::shared_ptr<const void> memory_owner,
                           DoneCallback done)
    : connections_(connections),
      stream_(stream),
      header_(header),
      encoding_(encoding),
      chunk_bytes_(connections->ChunkBytes(stream, /*is_push=*/true)),
      done_(std::move(done)),
      shared_(connections->SharedMemory(stream)),
      region_(shared_ == nullptr ? 0 : shared_->name()),
      memory_owner_(std::move(memory_owner)) {}

void BulkPushCall::AddBucket(uint32_t bucket, Version base_version,
                             absl::Span<const std::byte> data) {
  absl::MutexLock lock(&mutex_);
  if (over_) return;
  bytes_added_ += data.size();
  rests_.push_back({bucket, base_version, data});
  ScheduleCuttingLocked();
}

void BulkPushCall::EndOfBuckets() {
  absl::MutexLock lock(&mutex_);
  no_more_buckets_ = true;
  WriteLocked();
}

void BulkPushCall::ScheduleCuttingLocked() {
  if (is_cutting_ || over_ || rests_.empty() || chunks_.size() >= kChunksAhead) return;
  is_cutting_ = true;
  connections_->executor().Schedule(
      [self = shared_from_this(), owner = memory_owner_] { self->CutChunks(owner); });
}

bool BulkPushCall::TakeBlockLocked(std::optional<SharedMemoryCall::Block>& block) {
  block.reset();
  if (shared_ == nullptr) return true;
  SharedMemoryCall::Block taken;
  // Called on a gRPC thread, which must not be the one to destroy the call.
  auto retry = [connections = connections_, call = weak_from_this()] {
    connections->executor().Schedule([call] {
      const std::shared_ptr<BulkPushCall> self = call.lock();
      if (self == nullptr) return;
      absl::MutexLock lock(&self->mutex_);
      self->ScheduleCuttingLocked();
    });
  };
  switch (shared_->TakeBlock(this, taken, std::move(retry))) {
    case SharedMemoryCall::Answer::kTaken:
      block = taken;
      return true;
    case SharedMemoryCall::Answer::kWait:
      return false;
    case SharedMemoryCall::Answer::kNone:
      return true;
  }
  return true;
}

bool BulkPushCall::TakePiece(Rest& piece, std::optional<SharedMemoryCall::Block>& block) {
  absl::MutexLock lock(&mutex_);
  block.reset();
  const bool is_due = !over_ && !rests_.empty() && chunks_.size() < kChunksAhead;
  if (!is_due || (!rests_.front().data.empty() && !TakeBlockLocked(block))) {
    is_cutting_ = false;
    WriteLocked();
    return false;
  }
  Rest& rest = rests_.front();
  size_t limit_bytes = chunk_bytes_;
  if (block.has_value()) {
    limit_bytes = connections_->config().chunk_bytes;
  } else if (rest.begin == 0) {
    // It waits in the server.
    limit_bytes = std::min(kFirstChunkBytes, chunk_bytes_);
  }
  const size_t piece_bytes = EncodedBytes(encoding_, ChunkElements(encoding_, limit_bytes));
  piece = rest;
  piece.data = rest.data.subspan(rest.begin, piece_bytes);
  rest.begin += piece.data.size();
  if (rest.begin == rest.data.size()) rests_.pop_front();
  return true;
}

grpc::ByteBuffer BulkPushCall::Cut(const Rest& piece,
                                   const std::optional<SharedMemoryCall::Block>& block,
                                   const std::shared_ptr<const void>& memory_owner) const {
  const size_t bytes = piece.data.size();
  PushChunkHeader header = header_;
  header.bucket = piece.bucket;
  header.base_version = piece.base_version;
  header.offset = ElementsIn(encoding_, static_cast<int64_t>(piece.begin),
                             connections_->config().buckets[piece.bucket].range.size());
  if (piece.data.empty()) return EncodePushChunk(header);
  if (!block.has_value()) {
    header.crc32c = Crc32c(piece.data.data(), bytes);
    return EncodePushChunk(header, piece.data.data(), bytes, memory_owner);
  }
  header.crc32c = Crc32cCopy(block->memory.data(), piece.data.data(), bytes);
  header.place = {region_, block->offset, bytes};
  return EncodePushChunk(header);
}

void BulkPushCall::CutChunks(const std::shared_ptr<const void>& memory_owner) {
  Rest piece;
  std::optional<SharedMemoryCall::Block> block;
  while (TakePiece(piece, block)) {
    Chunk chunk = {.message = {}, .data_bytes = piece.data.size()};
    {
      TraceSpan span(connections_->config().trace, "send",
                     block.has_value() ? "checksum and copy" : "checksum",
                     {.bucket = piece.bucket});
      chunk.message = Cut(piece, block, memory_owner);
    }
    absl::MutexLock lock(&mutex_);
    if (over_) continue;
    chunks_.push_back(std::move(chunk));
    WriteLocked();
  }
}

void BulkPushCall::WriteLocked() {
  if (is_writing_ || writes_done_ || over_) return;
  if (!chunks_.empty()) {
    is_writing_ = true;
    writing_ = std::move(chunks_.front());
    chunks_.pop_front();
    grpc::WriteOptions options;
    // Told that more follows, gRPC does not wait for the wire; without more it must not hold back.
    if (!chunks_.empty()) options.set_buffer_hint();
    if (connections_->config().trace != nullptr) {
      write_began_at_ = connections_->config().trace->Now();
    }
    StartWrite(&writing_.message, options);
    ScheduleCuttingLocked();
    return;
  }
  if (no_more_buckets_ && rests_.empty() && !is_cutting_) {
    writes_done_ = true;
    StartWritesDone();
  }
}

void BulkPushCall::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  is_writing_ = false;
  writing_.message.Clear();
  if (TraceRecorder* const trace = connections_->config().trace; trace != nullptr) {
    trace->Add("send", "write", write_began_at_, trace->Now());
  }
  // A failed write means that the stream is over; OnReadDone() follows.
  if (!ok) return;
  ++num_written_;
  bytes_written_ += writing_.data_bytes;
  WriteLocked();
}

size_t BulkPushCall::bytes_unsent() {
  absl::MutexLock lock(&mutex_);
  return over_ ? 0 : bytes_added_ - bytes_written_;
}

OwnCall BulkPushCall::Look() {
  absl::MutexLock lock(&mutex_);
  const bool has_more = is_writing_ || is_cutting_ || !chunks_.empty() || !rests_.empty();
  return {
      .moved = num_written_, .is_push = true, .is_idle = !over_ && !has_more && !no_more_buckets_};
}

void BulkPushCall::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    ended_ = status;
  }
  Cancel();
}

void BulkPushCall::OnReadDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    over_ = true;
    has_reply_ = ok;
    rests_.clear();
    chunks_.clear();
  }
  RemoveHold();
}

absl::StatusOr<v1::PushReply> BulkPushCall::Result(const grpc::Status& status) {
  const auto explain = [this](absl::StatusCode code, absl::string_view text) {
    return absl::Status(code, absl::StrCat("push to ", connections_->server(stream_), ": ", text));
  };
  if (!status.ok()) {
    const absl::Status error = ended_.ok() ? ErrorOfStream(status) : ended_;
    return explain(error.code(), error.message());
  }
  v1::PushReply reply;
  if (!has_reply_ || !grpc::SerializationTraits<v1::PushReply>::Deserialize(&reply_, &reply).ok()) {
    return explain(absl::StatusCode::kDataLoss, "the answer is not a PushReply");
  }
  return reply;
}

void BulkPushCall::OnDone(const grpc::Status& status) {
  absl::StatusOr<v1::PushReply> result;
  {
    absl::MutexLock lock(&mutex_);
    memory_owner_.reset();
    writing_.message.Clear();
    result = Result(status);
    if (result.ok()) connections_->bytes_pushed += bytes_added_;
  }
  connections_->EndCall(number_, result.status());
  if (!result.ok() && shared_ != nullptr) connections_->Abandon(stream_, shared_);
  const DoneCallback done = std::move(done_);
  // The starter still holds the call. It must be the one to destroy it: with the context goes the
  // channel, and gRPC's threads cannot end themselves.
  self_.reset();
  done(std::move(result));
}

}  // namespace lodestar
