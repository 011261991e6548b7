#include "worker/client/bulk_pull_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/status_mapping.h"

namespace lodestar {

std::shared_ptr<BulkPullCall> BulkPullCall::Start(BulkConnections* connections, int stream,
                                                  Version min_version,
                                                  std::vector<PullTarget> targets,
                                                  Callbacks callbacks) {
  std::shared_ptr<BulkPullCall> call(
      new BulkPullCall(connections, stream, min_version, std::move(targets), std::move(callbacks)));
  call->self_ = call;
  connections->stub(stream).PrepareBidiStreamingCall(
      &call->context_, "/lodestar.v1.ParameterService/Pull", grpc::StubOptions(), call.get());
  call->StartWriteLast(&call->request_, grpc::WriteOptions());
  call->StartRead(&call->message_);
  call->StartCall();
  return call;
}

BulkPullCall::BulkPullCall(BulkConnections* connections, int stream, Version min_version,
                           std::vector<PullTarget> targets, Callbacks callbacks)
    : connections_(connections),
      stream_(stream),
      min_version_(min_version),
      targets_(std::move(targets)),
      callbacks_(std::move(callbacks)),
      shared_(connections->SharedMemory(stream)),
      region_(shared_ == nullptr ? 0 : shared_->name()) {
  v1::PullRequest request;
  request.set_worker_id(connections->config().worker.value());
  request.set_incarnation(connections->config().incarnation.value());
  request.set_min_version(min_version.value());
  request.set_encoding(v1::ENCODING_FP32);
  request.set_shared_region(region_);
  for (const PullTarget& target : targets_) request.add_buckets(target.bucket);
  bool own_buffer = false;
  const grpc::Status written =
      grpc::SerializationTraits<v1::PullRequest>::Serialize(request, &request_, &own_buffer);
  if (!written.ok()) status_ = FromGrpcStatus(written);
}

absl::Status BulkPullCall::CheckFits(const PullChunkHeader& header, size_t data_bytes) const {
  if (num_arrived_ == targets_.size()) {
    return absl::InternalError("more chunks came than were asked for");
  }
  const PullTarget& target = targets_[num_arrived_];
  const size_t room = target.destination.size() - received_;
  if (header.encoding != v1::ENCODING_FP32 || header.bucket != target.bucket ||
      header.offset != received_ || data_bytes % sizeof(float) != 0 ||
      data_bytes / sizeof(float) > room) {
    return absl::InternalError(
        absl::StrCat("a chunk of ", data_bytes, " bytes at element ", header.offset, " of bucket ",
                     header.bucket, " in encoding ", static_cast<int>(header.encoding),
                     " came, wanted is element ", received_, " of bucket ", target.bucket,
                     " and at most ", room, " fp32 elements; compare versions of both sides"));
  }
  if (header.version < min_version_ || (received_ > 0 && header.version != version_)) {
    return absl::InternalError(absl::StrCat(
        "bucket ", header.bucket, " came in version ", header.version.value(), ", wanted is ",
        received_ > 0 ? version_.value() : min_version_.value(), received_ > 0 ? "" : " or newer"));
  }
  return absl::OkStatus();
}

absl::Status BulkPullCall::CopyData(PullChunkReader& reader, absl::Span<float> destination) {
  const PullChunkHeader& header = reader.header();
  if (reader.is_shared() && (shared_ == nullptr || header.place.region != region_)) {
    return absl::InternalError(absl::StrCat("bucket ", header.bucket,
                                            " came in shared memory that is not ours; compare "
                                            "versions of both sides"));
  }
  ASSIGN_OR_RETURN(
      const uint32_t seen,
      reader.ReadData(destination.data(), shared_ == nullptr ? nullptr : &shared_->region()));
  if (reader.is_shared()) RETURN_IF_ERROR(shared_->MarkRead(header.place.offset));
  if (seen == header.crc32c) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("bucket ", header.bucket, " from element ", received_,
                                          " arrived with crc32c ", absl::Hex(seen), ", sent with ",
                                          absl::Hex(header.crc32c), "; pull again"));
}

absl::Status BulkPullCall::TakeChunk() {
  PullChunkReader reader(message_);
  RETURN_IF_ERROR(reader.ReadHeader());
  RETURN_IF_ERROR(CheckFits(reader.header(), reader.data_bytes()));
  const absl::Span<float> destination = targets_[num_arrived_].destination;
  const absl::Span<float> part =
      destination.subspan(received_, reader.data_bytes() / sizeof(float));
  RETURN_IF_ERROR(CopyData(reader, part));
  version_ = reader.header().version;
  received_ += part.size();
  connections_->bytes_pulled += reader.data_bytes();
  if (received_ < destination.size()) return absl::OkStatus();
  callbacks_.arrived(targets_[num_arrived_].bucket, version_);
  ++num_arrived_;
  received_ = 0;
  return absl::OkStatus();
}

void BulkPullCall::OnReadDone(bool ok) {
  if (!ok) return;
  if (status_.ok()) status_ = TakeChunk();
  if (!status_.ok()) Cancel();
  // Also after an error: the stream ends once it has been read to the end.
  StartRead(&message_);
}

absl::Status BulkPullCall::Explain(const absl::Status& status) const {
  return absl::Status(status.code(), absl::StrCat("pull from ", connections_->server(stream_), ": ",
                                                  status.message()));
}

void BulkPullCall::OnDone(const grpc::Status& status) {
  absl::Status result = status_;
  if (result.ok()) result = FromGrpcStatus(status);
  if (result.ok() && num_arrived_ < targets_.size()) {
    result = absl::InternalError(
        absl::StrCat("the stream ended after ", num_arrived_, " of ", targets_.size(), " buckets"));
  }
  if (!result.ok()) {
    result = Explain(result);
    if (shared_ != nullptr) connections_->Abandon(stream_, shared_);
  }
  const auto done = std::move(callbacks_.done);
  // The starter still holds the call. It must be the one to destroy it: with the context goes the
  // channel, and gRPC's threads cannot end themselves.
  self_.reset();
  done(result);
}

}  // namespace lodestar
