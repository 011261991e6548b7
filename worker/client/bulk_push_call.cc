// SPDX-License-Identifier: Apache-2.0

#include "worker/client/bulk_push_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crc32c/crc32c.h"
#include "common/runtime/status_macros.h"
#include "proto/status_mapping.h"

namespace lodestar::client {
namespace {

// Number of chunks that are copied into shared memory or from a device before they are written.
constexpr size_t kChunksAhead = 4;

}  // namespace

std::shared_ptr<BulkPushCall> BulkPushCall::Start(BulkConnections* connections, int stream,
                                                  wire::PushChunkHeader header,
                                                  BlockRates learning_rates,
                                                  params::Encoding encoding,
                                                  std::shared_ptr<const void> memory_owner,
                                                  DoneCallback done) {
  std::shared_ptr<BulkPushCall> call(new BulkPushCall(connections, stream, header,
                                                      std::move(learning_rates), encoding,
                                                      std::move(memory_owner), std::move(done)));
  call->self_ = call;
  call->number_ = connections->BeginCall(stream, call, call->context_);
  grpc::GenericStub(call->channel_)
      .PrepareBidiStreamingCall(&call->context_, "/lodestar.v1.ParameterService/Push",
                                grpc::StubOptions(), call.get());
  // AddHold() keeps the call alive until OnReadDone(), because writes start outside of gRPC's
  // callbacks.
  call->AddHold();
  call->StartRead(&call->reply_);
  call->StartCall();
  return call;
}

BulkPushCall::BulkPushCall(BulkConnections* connections, int stream, wire::PushChunkHeader header,
                           BlockRates learning_rates, params::Encoding encoding,
                           std::shared_ptr<const void> memory_owner, DoneCallback done)
    : connections_(connections),
      stream_(stream),
      channel_(connections->ChannelOf(stream)),
      header_(header),
      learning_rates_(std::move(learning_rates)),
      encoding_(encoding),
      chunk_bytes_(connections->ChunkBytes(stream, /*is_push=*/true)),
      done_(std::move(done)),
      shared_(connections->SharedMemory(stream)),
      region_(shared_ == nullptr ? 0 : shared_->name()),
      is_registered_(shared_ != nullptr && shared_->is_registered()),
      memory_owner_(std::move(memory_owner)) {}

void BulkPushCall::AddBucket(uint32_t bucket, Version base_version,
                             absl::Span<const std::byte> data) {
  Add({.bucket = bucket, .base_version = base_version, .data = data});
}

void BulkPushCall::AddDeviceBucket(uint32_t bucket, Version base_version,
                                   const DevicePayload& payload) {
  Add({.bucket = bucket, .base_version = base_version, .device = payload});
}

void BulkPushCall::Add(const Rest& rest) {
  absl::MutexLock lock(&mutex_);
  if (over_) return;
  bytes_added_ += rest.bytes();
  rests_.push_back(rest);
  ScheduleCuttingLocked();
}

void BulkPushCall::EndOfBuckets() {
  absl::MutexLock lock(&mutex_);
  no_more_buckets_ = true;
  WriteLocked();
}

bool BulkPushCall::CutsBetweenWritesLocked() const {
  return shared_ == nullptr && !rests_.empty() && rests_.front().device.source == nullptr;
}

bool BulkPushCall::CanCutLocked() const {
  if (over_ || rests_.empty()) return false;
  return CutsBetweenWritesLocked() ? !is_writing_ && chunks_.empty()
                                   : chunks_.size() < kChunksAhead;
}

void BulkPushCall::ScheduleCuttingLocked() {
  if (is_cutting_ || !CanCutLocked()) return;
  is_cutting_ = true;
  connections_->executor().Schedule(
      [self = shared_from_this(), owner = memory_owner_] { self->CutChunks(owner); });
}

bool BulkPushCall::TakeBlockLocked(std::optional<SharedMemoryCall::Block>& block) {
  block.reset();
  if (shared_ == nullptr) return true;
  SharedMemoryCall::Block taken;
  // TakeBlock() calls `retry` on a gRPC thread, which must not destroy this push call. So the
  // executor takes the reference.
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

bool BulkPushCall::TakePiece(Piece& piece) {
  absl::MutexLock lock(&mutex_);
  piece.block.reset();
  if (!CanCutLocked() || (rests_.front().bytes() != 0 && !TakeBlockLocked(piece.block))) {
    is_cutting_ = false;
    WriteLocked();
    return false;
  }
  Rest& rest = rests_.front();
  size_t limit_bytes = chunk_bytes_;
  if (piece.block.has_value()) {
    limit_bytes = connections_->config().shared_block_bytes;
  } else if (rest.begin == 0) {
    // The first chunk of a bucket is small, because the server holds it in memory while the push
    // waits.
    limit_bytes = std::min(wire::kFirstChunkBytes, chunk_bytes_);
  }
  const size_t most_bytes =
      params::EncodedBytes(encoding_, params::ChunkElements(encoding_, limit_bytes));
  piece.rest = rest;
  piece.bytes = std::min(most_bytes, rest.bytes() - rest.begin);
  rest.begin += piece.bytes;
  if (rest.begin == rest.bytes()) rests_.pop_front();
  return true;
}

absl::StatusOr<absl::Span<const std::byte>> BulkPushCall::InHostMemory(const Piece& piece) const {
  const Rest& rest = piece.rest;
  if (rest.device.source == nullptr) return rest.data.subspan(rest.begin, piece.bytes);
  return rest.device.source->Fetch(rest.device.begin + static_cast<int64_t>(rest.begin),
                                   static_cast<int64_t>(piece.bytes));
}

absl::StatusOr<uint32_t> BulkPushCall::FillBlock(const Piece& piece) const {
  char* const memory = piece.block->memory.data();
  if (IsDirect(piece)) {
    const DevicePayload& device = piece.rest.device;
    RETURN_IF_ERROR(device.source->CopyOut({reinterpret_cast<std::byte*>(memory), piece.bytes},
                                           device.begin + static_cast<int64_t>(piece.rest.begin)));
    return crc32c::Crc32c(memory, piece.bytes);
  }
  ASSIGN_OR_RETURN(const absl::Span<const std::byte> data, InHostMemory(piece));
  return crc32c::Crc32cCopy(memory, data.data(), data.size());
}

absl::StatusOr<grpc::ByteBuffer> BulkPushCall::Cut(
    const Piece& piece, const std::shared_ptr<const void>& memory_owner) const {
  const Rest& rest = piece.rest;
  wire::PushChunkHeader header = header_;
  header.bucket = rest.bucket;
  header.base_version = rest.base_version;
  const auto rate = learning_rates_.find(connections_->config().buckets[rest.bucket].block);
  if (rate != learning_rates_.end()) header.learning_rate = rate->second;
  header.offset = params::ElementsIn(encoding_, static_cast<int64_t>(rest.begin),
                                     connections_->config().buckets[rest.bucket].range.size());
  if (piece.bytes == 0) return wire::EncodePushChunk(header);
  if (piece.block.has_value()) {
    ASSIGN_OR_RETURN(header.crc32c, FillBlock(piece));
    header.place = {region_, piece.block->offset, piece.bytes};
    return wire::EncodePushChunk(header);
  }
  ASSIGN_OR_RETURN(const absl::Span<const std::byte> data, InHostMemory(piece));
  header.crc32c = crc32c::Crc32c(data.data(), data.size());
  return wire::EncodePushChunk(header, data.data(), data.size(), memory_owner);
}

void BulkPushCall::Fail(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (over_) return;
    over_ = true;
    ended_ = status;
    rests_.clear();
    chunks_.clear();
  }
  Cancel();
}

void BulkPushCall::CutChunks(const std::shared_ptr<const void>& memory_owner) {
  for (Piece piece; TakePiece(piece);) CutPiece(piece, memory_owner);
}

void BulkPushCall::CutOne(const std::shared_ptr<const void>& memory_owner) {
  Piece piece;
  if (!TakePiece(piece)) return;
  CutPiece(piece, memory_owner);
  absl::MutexLock lock(&mutex_);
  is_cutting_ = false;
  WriteLocked();
  ScheduleCuttingLocked();
}

void BulkPushCall::CutPiece(const Piece& piece, const std::shared_ptr<const void>& memory_owner) {
  Chunk chunk = {.message = {}, .data_bytes = piece.bytes};
  {
    process::TraceSpan span(connections_->config().trace, "send",
                            IsDirect(piece)           ? "device copy and checksum"
                            : piece.block.has_value() ? "checksum and copy"
                                                      : "checksum",
                            {.bucket = piece.rest.bucket});
    absl::StatusOr<grpc::ByteBuffer> message = Cut(piece, memory_owner);
    if (!message.ok()) return Fail(message.status());
    chunk.message = *std::move(message);
  }
  absl::MutexLock lock(&mutex_);
  if (over_) return;
  chunks_.push_back(std::move(chunk));
  WriteLocked();
}

void BulkPushCall::WriteLocked() {
  if (is_writing_ || writes_done_ || over_) return;
  if (!chunks_.empty()) {
    is_writing_ = true;
    writing_ = std::move(chunks_.front());
    chunks_.pop_front();
    grpc::WriteOptions options;
    // The hint allows gRPC to delay this chunk until more chunks follow. The last chunk gets no
    // hint, because it must not be delayed.
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
  std::shared_ptr<const void> memory_owner;
  {
    absl::MutexLock lock(&mutex_);
    is_writing_ = false;
    writing_.message.Clear();
    if (process::TraceRecorder* const trace = connections_->config().trace; trace != nullptr) {
      trace->Add("send", "write", write_began_at_, trace->Now());
    }
    // After a failed write the stream is over, and OnReadDone() follows.
    if (!ok) return;
    ++num_written_;
    bytes_written_ += writing_.data_bytes;
    if (is_cutting_ || !CutsBetweenWritesLocked() || !CanCutLocked()) return WriteLocked();
    is_cutting_ = true;
    memory_owner = memory_owner_;
  }
  CutOne(memory_owner);
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
    return connections_->Explain("push to", stream_, absl::Status(code, text));
  };
  if (!status.ok()) {
    const absl::Status error = ended_.ok() ? ErrorOfStream(status) : ended_;
    return explain(error.code(), error.message());
  }
  v1::PushReply reply;
  if (!has_reply_ || !grpc::SerializationTraits<v1::PushReply>::Deserialize(&reply_, &reply).ok()) {
    return explain(absl::StatusCode::kDataLoss,
                   "the server's answer is not a PushReply; use the same release on both sides");
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
  connections_->CheckConnection(stream_, channel_, status);
  if (!result.ok() && shared_ != nullptr) connections_->Abandon(stream_, shared_);
  const DoneCallback done = std::move(done_);
  // This gRPC thread must not destroy the call: the channel may be destroyed with it, and gRPC
  // threads cannot join themselves. The starter of the call still holds a reference and destroys
  // the call.
  self_.reset();
  done(std::move(result));
}

}  // namespace lodestar::client
