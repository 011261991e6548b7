#include "server/rpc/weights_export.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/crc32c.h"
#include "common/model_spec_json.h"
#include "common/safetensors.h"
#include "common/status_macros.h"
#include "proto/bulk_options.h"
#include "proto/parameter_service.grpc.pb.h"
#include "proto/status_mapping.h"

namespace lodestar {
namespace {

constexpr absl::Duration kPullDeadline = absl::Minutes(10);

absl::string_view AsBytes(absl::Span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

absl::Status WritePieces(absl::string_view bytes, WeightsExport::Sink sink) {
  while (!bytes.empty()) {
    RETURN_IF_ERROR(sink(bytes.substr(0, kChunkBytes)));
    bytes.remove_prefix(std::min(bytes.size(), kChunkBytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WeightsExport::WriteTo(Sink sink) const {
  RETURN_IF_ERROR(WriteHeader(sink));
  // Buckets lie in order of the parameter space, and so do the tensors of the file.
  for (const Bucket& bucket : map_->buckets) {
    if (bucket.shard == 0) RETURN_IF_ERROR(WriteLocalBucket(bucket, sink));
  }
  for (const ShardAddress& shard : map_->shards) {
    if (shard.shard != 0) RETURN_IF_ERROR(WriteRemoteBuckets(shard, sink));
  }
  return absl::OkStatus();
}

absl::Status WeightsExport::WriteHeader(Sink sink) const {
  std::vector<SafetensorsEntry> entries;
  for (const TensorSpec& tensor : map_->layout.tensors()) {
    entries.push_back({tensor.name, tensor.shape});
  }
  const SafetensorsMetadata metadata = {{"format", "pt"},
                                        {kModelMetadataKey, ModelSpecToJson(job_.model)}};
  ASSIGN_OR_RETURN(const SafetensorsHeader header,
                   FormatSafetensorsHeader("the export", entries, metadata));
  return WritePieces(header.bytes, sink);
}

absl::Status WeightsExport::WriteLocalBucket(const Bucket& bucket, Sink sink) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<ParameterShard> shard, local_->shard());
  // Shared, because an answer may come while the call is being given up.
  struct Answer {
    absl::Notification arrived;
    absl::StatusOr<PublishedBucket> bucket = absl::InternalError("no answer");
  };
  const auto answer = std::make_shared<Answer>();
  PendingCall call = shard->ReadBucket(WorkerId(0), Incarnation(0), bucket.index, min_version_,
                                       [answer](absl::StatusOr<PublishedBucket> published) {
                                         answer->bucket = std::move(published);
                                         answer->arrived.Notify();
                                       });
  if (!answer->arrived.WaitForNotificationWithTimeout(kPullDeadline)) {
    call.Cancel();
    return absl::DeadlineExceededError(absl::StrCat(
        "bucket ", bucket.index, " has not reached version ", min_version_.value(), " within ",
        absl::FormatDuration(kPullDeadline), "; psctl status says what is waited for"));
  }
  RETURN_IF_ERROR(answer->bucket.status());
  return WritePieces(AsBytes(answer->bucket->data()), sink);
}

absl::Status WeightsExport::WriteRemoteBuckets(const ShardAddress& shard, Sink sink) const {
  const auto stub = v1::ParameterService::NewStub(grpc::CreateCustomChannel(
      shard.address, grpc::InsecureChannelCredentials(), DataChannelArguments()));
  v1::PullRequest request;
  request.set_min_version(min_version_.value());
  request.set_encoding(v1::ENCODING_FP32);
  for (const Bucket& bucket : map_->buckets) {
    if (bucket.shard == shard.shard) request.add_buckets(bucket.index);
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kPullDeadline));
  const auto reader = stub->Pull(&context, request);
  v1::PullChunk chunk;
  int64_t received = 0;
  while (reader->Read(&chunk)) {
    if (Crc32c(chunk.data().data(), chunk.data().size()) != chunk.crc32c()) {
      context.TryCancel();
      return absl::DataLossError(absl::StrCat("shard ", shard.shard, " bucket ", chunk.bucket(),
                                              " offset ", chunk.offset(),
                                              ": the checksum does not hold; export again"));
    }
    received += static_cast<int64_t>(chunk.data().size());
    const absl::Status written = sink(chunk.data());
    if (!written.ok()) {
      context.TryCancel();
      return written;
    }
  }
  RETURN_IF_ERROR(FromGrpcStatus(reader->Finish()));
  const int64_t wanted = shard.range.size() * static_cast<int64_t>(sizeof(float));
  if (received == wanted) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("shard ", shard.shard, " sent ", received,
                                          " bytes of weights, wanted ", wanted));
}

}  // namespace lodestar
