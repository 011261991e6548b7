// SPDX-License-Identifier: Apache-2.0

#include "worker/client/bulk_pull_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crc32c/crc32c.h"
#include "common/params/encoding.h"
#include "common/runtime/status_macros.h"
#include "proto/convert.h"
#include "proto/status_mapping.h"

namespace lodestar::client {
namespace {

size_t BytesOf(const std::vector<PullTarget>& targets) {
  size_t bytes = 0;
  for (const PullTarget& target : targets) bytes += target.destination.size() * sizeof(float);
  return bytes;
}

}  // namespace

std::shared_ptr<BulkPullCall> BulkPullCall::Start(BulkConnections* connections, int stream,
                                                  Path path, PullSpec spec, Callbacks callbacks) {
  std::shared_ptr<BulkPullCall> call(
      new BulkPullCall(connections, stream, path, std::move(spec), std::move(callbacks)));
  call->self_ = call;
  call->number_ = connections->BeginCall(stream, call, call->context_);
  grpc::GenericStub(call->channel_)
      .PrepareBidiStreamingCall(&call->context_, "/lodestar.v1.ParameterService/Pull",
                                grpc::StubOptions(), call.get());
  call->StartWriteLast(&call->request_, grpc::WriteOptions());
  call->StartRead(&call->message_);
  call->StartCall();
  return call;
}

BulkPullCall::BulkPullCall(BulkConnections* connections, int stream, Path path, PullSpec spec,
                           Callbacks callbacks)
    : connections_(connections),
      stream_(stream),
      channel_(connections->ChannelOf(stream)),
      min_round_(spec.min_round),
      encoding_(spec.encoding),
      targets_(std::move(spec.targets)),
      is_long_(BytesOf(targets_) >= kLongPullBytes),
      callbacks_(std::move(callbacks)),
      shared_(path == Path::kBest ? connections->SharedMemory(stream) : nullptr),
      region_(shared_ == nullptr ? 0 : shared_->name()),
      is_registered_(shared_ != nullptr && shared_->is_registered()) {
  v1::PullRequest request;
  request.set_worker_id(connections->config().worker.value());
  request.set_incarnation(connections->config().incarnation.value());
  request.set_min_round(min_round_.value());
  request.set_encoding(wire::ToProto(encoding_.kind()));
  // On a path that is not slow, the server chooses the chunk size.
  const size_t chunk_bytes = connections->ChunkBytes(stream, /*is_push=*/false);
  if (chunk_bytes < connections->config().chunk_bytes) {
    request.set_max_chunk_bytes(static_cast<uint32_t>(chunk_bytes));
  }
  request.set_shared_region(region_);
  request.set_state_vector(spec.state_vector);
  for (const PullTarget& target : targets_) {
    request.add_buckets(target.bucket);
    if (encoding_ == params::Encoding::kFp32) continue;
    request.add_held_versions(target.held.has_value() ? target.held->value() : -1);
  }
  request.set_crc32c(wire::ChecksumOf(request));
  bool own_buffer = false;
  const grpc::Status written =
      grpc::SerializationTraits<v1::PullRequest>::Serialize(request, &request_, &own_buffer);
  if (!written.ok()) status_ = wire::FromGrpcStatus(written);
}

absl::Status BulkPullCall::CheckKind(const wire::PullChunkHeader& header) const {
  if (num_arrived_ == targets_.size()) {
    return absl::DataLossError(
        "the server sent more chunks than this worker asked for; use the same release on both "
        "sides");
  }
  const PullTarget& target = targets_[num_arrived_];
  if (received_ > 0 && header.version != version_) {
    return absl::DataLossError(absl::StrCat(
        "bucket ", header.bucket, " arrived in version ", header.version.value(),
        ", but the chunk before it had version ", version_.value(), "; the worker pulls again"));
  }
  const bool is_whole = header.encoding == v1::ENCODING_FP32;
  const bool are_changes = header.encoding == wire::ToProto(encoding_.kind()) &&
                           target.held.has_value() && header.base_version == *target.held &&
                           header.version > header.base_version;
  if ((is_whole || are_changes) && (received_ == 0 || is_whole == (num_changes_ == 0))) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      "bucket ", header.bucket, " arrived as a change since version ", header.base_version.value(),
      " in encoding number ", static_cast<int>(header.encoding),
      ", but this worker asked for the weights in fp32",
      target.held.has_value() ? absl::StrCat(" or a change since version ", target.held->value(),
                                             " in ", params::EncodingName(encoding_))
                              : "",
      "; use the same release on both sides"));
}

absl::StatusOr<absl::Span<std::byte>> BulkPullCall::PlaceOf(const wire::PullChunkHeader& header,
                                                            size_t data_bytes) const {
  RETURN_IF_ERROR(CheckKind(header));
  const PullTarget& target = targets_[num_arrived_];
  const int64_t num_elements = static_cast<int64_t>(target.destination.size());
  const bool is_whole = header.encoding == v1::ENCODING_FP32;
  const params::Encoding encoding = is_whole ? params::Encoding::kFp32 : encoding_;
  const size_t part_bytes = params::EncodedBytes(encoding, num_elements);
  const absl::Span<std::byte> all =
      is_whole ? absl::MakeSpan(reinterpret_cast<std::byte*>(target.destination.data()), part_bytes)
               : target.changes;
  const uint64_t num_parts = is_whole ? 1 : header.version - header.base_version;
  // Offset and free bytes in the part that is arriving. A part is the whole bucket or one change of
  // the bucket.
  const size_t begin = received_ % part_bytes;
  const size_t room = num_parts > all.size() / part_bytes ? 0 : part_bytes - begin;
  const int64_t begin_element =
      params::ElementsIn(encoding, static_cast<int64_t>(begin), num_elements);
  const uint64_t offset = received_ / part_bytes * num_elements + begin_element;
  const int64_t elements =
      params::ElementsIn(encoding, static_cast<int64_t>(data_bytes), num_elements - begin_element);
  if (header.bucket != target.bucket || header.offset != offset || elements < 1 ||
      data_bytes > room) {
    return absl::DataLossError(
        absl::StrCat("a chunk of ", data_bytes, " bytes at element ", header.offset, " of bucket ",
                     header.bucket, " arrived, but this worker expected element ", offset,
                     " of bucket ", target.bucket, " and at most ", room, " bytes of ",
                     params::EncodingName(encoding), "; use the same release on both sides"));
  }
  return all.subspan(received_, data_bytes);
}

absl::Status BulkPullCall::CopyData(wire::PullChunkReader& reader, absl::Span<std::byte> place) {
  const wire::PullChunkHeader& header = reader.header();
  if (reader.is_shared() && (shared_ == nullptr || header.place.region != region_)) {
    return absl::DataLossError(absl::StrCat("bucket ", header.bucket,
                                            " arrived in shared memory that does not belong to "
                                            "this worker; use the same release on both sides"));
  }
  ASSIGN_OR_RETURN(const uint32_t seen,
                   GoesToDevice(header) ? CopyToDevice(reader, place) : ReadData(reader, place));
  if (reader.is_shared()) RETURN_IF_ERROR(shared_->MarkRead(header.place.offset));
  if (seen == header.crc32c) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("bucket ", header.bucket, " from element ", header.offset,
                                          " arrived with crc32c ", absl::Hex(seen),
                                          ", but was sent with ", absl::Hex(header.crc32c),
                                          ", so the network damaged it; the worker pulls again"));
}

absl::StatusOr<uint32_t> BulkPullCall::ReadData(wire::PullChunkReader& reader,
                                                absl::Span<std::byte> place) const {
  // Changes are decoded soon after they arrive, so they are copied into the CPU caches. Large whole
  // buckets are written to memory without using the caches.
  const bool is_whole = reader.header().encoding == v1::ENCODING_FP32;
  return reader.ReadData(
      place.data(), shared_ == nullptr ? nullptr : &shared_->region(),
      [](const wire::ArrivedBytes&) {},
      is_whole && is_long_ ? crc32c::CopyTo::kMemory : crc32c::CopyTo::kCaches);
}

bool BulkPullCall::GoesToDevice(const wire::PullChunkHeader& header) const {
  return is_registered_ && header.encoding == v1::ENCODING_FP32 &&
         targets_[num_arrived_].device != nullptr;
}

absl::StatusOr<uint32_t> BulkPullCall::CopyToDevice(wire::PullChunkReader& reader,
                                                    absl::Span<std::byte> place) {
  const PullTarget& target = targets_[num_arrived_];
  const int64_t begin = target.device_begin + static_cast<int64_t>(received_);
  const wire::PullChunkHeader& header = reader.header();
  if (!reader.is_shared()) {
    ASSIGN_OR_RETURN(const uint32_t seen, ReadData(reader, place));
    RETURN_IF_ERROR(target.device->CopyIn(begin, place, [] {}));
    return seen;
  }
  ASSIGN_OR_RETURN(const absl::Span<const char> source,
                   shared_->region().Part(header.place.offset, header.place.bytes));
  uint32_t seen = 0;
  RETURN_IF_ERROR(target.device->CopyIn(
      begin, {reinterpret_cast<const std::byte*>(source.data()), source.size()},
      [&seen, source] { seen = crc32c::Crc32c(source.data(), source.size()); }));
  return seen;
}

absl::Status BulkPullCall::TakeChunk() {
  wire::PullChunkReader reader(message_);
  RETURN_IF_ERROR(reader.ReadHeader());
  const wire::PullChunkHeader& header = reader.header();
  ASSIGN_OR_RETURN(const absl::Span<std::byte> place, PlaceOf(header, reader.data_bytes()));
  RETURN_IF_ERROR(CopyData(reader, place));
  version_ = header.version;
  num_changes_ = header.encoding == v1::ENCODING_FP32 ? 0 : header.version - header.base_version;
  received_ += place.size();
  bytes_received_ += place.size();
  connections_->bytes_pulled += place.size();
  if (!reader.is_shared()) callbacks_.received(place.size());
  const int64_t num_elements = static_cast<int64_t>(targets_[num_arrived_].destination.size());
  const size_t wanted = num_changes_ == 0
                            ? params::EncodedBytes(params::Encoding::kFp32, num_elements)
                            : num_changes_ * params::EncodedBytes(encoding_, num_elements);
  if (received_ < wanted) return absl::OkStatus();
  callbacks_.arrived({targets_[num_arrived_].bucket, version_, num_changes_, GoesToDevice(header)});
  ++num_arrived_;
  received_ = 0;
  return absl::OkStatus();
}

OwnCall BulkPullCall::Look() {
  const uint64_t received = bytes_received_;
  return {.moved = received, .received = received};
}

void BulkPullCall::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    ended_ = status;
  }
  Cancel();
}

void BulkPullCall::OnReadDone(bool ok) {
  if (!ok) return;
  if (status_.ok()) status_ = TakeChunk();
  if (!status_.ok()) Cancel();
  // Also reads after an error, because the call ends only when the stream was read to its end.
  StartRead(&message_);
}

void BulkPullCall::OnDone(const grpc::Status& status) {
  absl::Status result = status_;
  if (result.ok() && !status.ok()) {
    absl::MutexLock lock(&mutex_);
    result = ended_.ok() ? ErrorOfStream(status) : ended_;
  }
  connections_->CheckConnection(stream_, channel_, status);
  if (result.ok() && num_arrived_ < targets_.size()) {
    result =
        absl::DataLossError(absl::StrCat("the server ended the stream after ", num_arrived_, " of ",
                                         targets_.size(), " buckets; the worker pulls again"));
  }
  connections_->EndCall(number_, result);
  if (!result.ok()) {
    result = connections_->Explain("pull from", stream_, result);
    if (shared_ != nullptr) connections_->Abandon(stream_, shared_);
  }
  const auto done = std::move(callbacks_.done);
  // This gRPC thread must not destroy the call: the channel may be destroyed with it, and gRPC
  // threads cannot join themselves. The starter of the call still holds a reference and destroys
  // the call.
  self_.reset();
  done(result);
}

}  // namespace lodestar::client
