// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/weights_export.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/crc32c/crc32c.h"
#include "common/params/model_spec_json.h"
#include "common/runtime/status_macros.h"
#include "common/storage/safetensors.h"
#include "proto/bulk_options.h"
#include "proto/status_mapping.h"

namespace lodestar::rpc {
namespace {

// Maximum time to wait for an update of the bucket. The transfer of the bucket gets more time: its
// size divided by kSlowestBytesPerSecond.
constexpr absl::Duration kUpdatePatience = absl::Minutes(1);
constexpr double kSlowestBytesPerSecond = 1 << 20;

absl::Duration PatienceFor(const params::Bucket& bucket) {
  const auto bytes = static_cast<double>(bucket.range.size()) * sizeof(float);
  return kUpdatePatience + absl::Seconds(bytes / kSlowestBytesPerSecond);
}

absl::string_view AsBytes(absl::Span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

absl::Status WritePieces(absl::string_view bytes, WeightsExport::Sink sink) {
  while (!bytes.empty()) {
    RETURN_IF_ERROR(sink(bytes.substr(0, wire::kChunkBytes)));
    bytes.remove_prefix(std::min(bytes.size(), wire::kChunkBytes));
  }
  return absl::OkStatus();
}

absl::Status StoppingStatus() {
  return absl::UnavailableError("the server is stopping; export again when it is back");
}

}  // namespace

absl::Status WeightsExport::WriteTo(Sink sink) const {
  RETURN_IF_ERROR(WriteHeader(sink));
  // Buckets are in the order of the parameter space, and so are the tensors of the file.
  for (const params::Bucket& bucket : map_->buckets) {
    if (bucket.shard == 0) RETURN_IF_ERROR(WriteLocalBucket(bucket, sink));
  }
  for (const messages::ServerAddress& server : map_->servers) {
    if (server.shard != 0) RETURN_IF_ERROR(WriteRemoteBuckets(server, sink));
  }
  return absl::OkStatus();
}

absl::Status WeightsExport::WriteHeader(Sink sink) const {
  std::vector<storage::SafetensorsEntry> entries;
  for (const params::TensorSpec& tensor : map_->layout.tensors()) {
    entries.push_back({tensor.name, tensor.shape});
  }
  const storage::SafetensorsMetadata metadata = {
      {"format", "pt"}, {params::kModelMetadataKey, params::ModelSpecToJson(job_.model)}};
  ASSIGN_OR_RETURN(const storage::SafetensorsHeader header,
                   storage::FormatSafetensorsHeader("the export", entries, metadata));
  return WritePieces(header.bytes, sink);
}

absl::Status WeightsExport::WriteLocalBucket(const params::Bucket& bucket, Sink sink) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<shard::ParameterShard> shard, local_->shard());
  // The answer is shared, because it may come after this function has given up the call.
  struct Answer {
    absl::Notification arrived;
    absl::StatusOr<shard::PublishedBucket> bucket = absl::InternalError("no answer");
  };
  const auto answer = std::make_shared<Answer>();
  shard::PendingCall call =
      shard->ReadBucket(WorkerId(0), Incarnation(0), bucket.index, min_round_,
                        [answer](absl::StatusOr<shard::PublishedBucket> published) {
                          answer->bucket = std::move(published);
                          answer->arrived.Notify();
                        });
  if (!answer->arrived.WaitForNotificationWithTimeout(kUpdatePatience)) {
    call.Cancel();
    return absl::DeadlineExceededError(
        absl::StrCat("bucket ", bucket.index, " has not reached round ", min_round_.value(),
                     " within ", absl::FormatDuration(kUpdatePatience), ": ", shard->WaitingFor()));
  }
  RETURN_IF_ERROR(answer->bucket.status());
  return WritePieces(AsBytes(answer->bucket->data()), sink);
}

absl::Status WeightsExport::WriteRemoteBuckets(const messages::ServerAddress& server,
                                               Sink sink) const {
  const auto stub = v1::ParameterService::NewStub(grpc::CreateCustomChannel(
      server.address, security_.channel_credentials(), wire::DataChannelArguments()));
  for (const params::Bucket& bucket : map_->buckets) {
    if (bucket.shard != server.shard) continue;
    // The bucket is received completely before any of it is passed on, so that a slow reader does
    // not look like a slow server.
    const absl::StatusOr<std::string> bytes = PullBucket(*stub, bucket);
    if (!bytes.ok()) {
      return absl::Status(bytes.status().code(),
                          absl::StrCat("shard ", server.shard, " at ", server.address, ", bucket ",
                                       bucket.index, ": ", bytes.status().message()));
    }
    RETURN_IF_ERROR(WritePieces(*bytes, sink));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> WeightsExport::PullBucket(v1::ParameterService::Stub& stub,
                                                      const params::Bucket& bucket) const {
  v1::PullRequest request;
  if (static_cast<size_t>(bucket.shard) < export_keys_.size()) {
    request.set_incarnation(export_keys_[bucket.shard]);
  }
  request.set_min_round(min_round_.value());
  request.set_encoding(v1::ENCODING_FP32);
  request.add_buckets(bucket.index);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMilliseconds(PatienceFor(bucket)));
  if (!calls_->Begin(&context)) return StoppingStatus();
  const auto reader = stub.Pull(&context, request);
  const size_t wanted = static_cast<size_t>(bucket.range.size()) * sizeof(float);
  std::string bytes;
  bytes.reserve(wanted);
  v1::PullChunk chunk;
  absl::Status fits;
  while (fits.ok() && reader->Read(&chunk)) {
    if (crc32c::Crc32c(chunk.data().data(), chunk.data().size()) !=
            static_cast<uint32_t>(chunk.crc32c()) ||
        chunk.data().size() > wanted - bytes.size()) {
      fits = absl::DataLossError(absl::StrCat("the checksum or size of the chunk at element ",
                                              chunk.offset(), " is wrong; export again"));
    }
    bytes += chunk.data();
  }
  if (!fits.ok()) context.TryCancel();
  const absl::Status finished = wire::FromGrpcStatus(reader->Finish());
  calls_->End(&context);
  RETURN_IF_ERROR(fits);
  if (absl::IsCancelled(finished) && calls_->are_cancelled()) return StoppingStatus();
  RETURN_IF_ERROR(finished);
  if (bytes.size() == wanted) return bytes;
  return absl::DataLossError(absl::StrCat(bytes.size(), " bytes of the weights arrived, but ",
                                          wanted, " bytes were expected; export again"));
}

}  // namespace lodestar::rpc
