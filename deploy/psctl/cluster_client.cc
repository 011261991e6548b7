#include "deploy/psctl/cluster_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/output_file.h"
#include "common/status_macros.h"
#include "proto/bulk_options.h"
#include "proto/status_mapping.h"

namespace lodestar {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(10);
// Writing and verifying a checkpoint of a large model takes a while.
constexpr absl::Duration kBulkTimeout = absl::Hours(1);

void SetDeadline(absl::Duration timeout, grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
}

}  // namespace

ClusterClient::ClusterClient(std::string server)
    : server_(std::move(server)),
      channel_(grpc::CreateCustomChannel(server_, grpc::InsecureChannelCredentials(),
                                         ControlChannelArguments())),
      status_(v1::StatusService::NewStub(channel_)),
      admin_(v1::AdminService::NewStub(channel_)) {}

absl::Status ClusterClient::Explain(const grpc::Status& status) const {
  const absl::Status native = FromGrpcStatus(status);
  if (native.ok()) return native;
  return absl::Status(
      native.code(),
      absl::StrCat("ps_server at ", server_, ": ", native.message(),
                   absl::IsUnavailable(native) ? "; is it running, and is --server right?" : ""));
}

absl::StatusOr<v1::ClusterStatus> ClusterClient::GetStatus() {
  grpc::ClientContext context;
  SetDeadline(kCallTimeout, &context);
  v1::ClusterStatus status;
  RETURN_IF_ERROR(Explain(status_->GetStatus(&context, v1::GetStatusRequest(), &status)));
  return status;
}

absl::Status ClusterClient::WatchStatus(absl::Duration interval,
                                        const std::function<bool(const v1::ClusterStatus&)>& show) {
  grpc::ClientContext context;
  v1::WatchStatusRequest request;
  request.set_interval_ms(absl::ToInt64Milliseconds(interval));
  const auto reader = status_->WatchStatus(&context, request);
  v1::ClusterStatus status;
  while (reader->Read(&status)) {
    if (show(status)) continue;
    context.TryCancel();
    reader->Finish();
    return absl::OkStatus();
  }
  return Explain(reader->Finish());
}

absl::StatusOr<v1::CheckpointReply> ClusterClient::Checkpoint() {
  grpc::ClientContext context;
  SetDeadline(kBulkTimeout, &context);
  v1::CheckpointReply reply;
  RETURN_IF_ERROR(Explain(admin_->Checkpoint(&context, v1::CheckpointRequest(), &reply)));
  return reply;
}

absl::StatusOr<int64_t> ClusterClient::Export(const std::string& path) {
  ASSIGN_OR_RETURN(ReplacementFile file, ReplacementFile::Create(path));
  grpc::ClientContext context;
  SetDeadline(kBulkTimeout, &context);
  const auto reader = admin_->Export(&context, v1::ExportRequest());
  v1::ExportChunk chunk;
  int64_t bytes = 0;
  while (reader->Read(&chunk)) {
    if (const absl::Status written = file.Append(chunk.data()); !written.ok()) {
      context.TryCancel();
      reader->Finish();
      return written;
    }
    bytes += static_cast<int64_t>(chunk.data().size());
  }
  RETURN_IF_ERROR(Explain(reader->Finish()));
  RETURN_IF_ERROR(file.Commit());
  return bytes;
}

absl::Status ClusterClient::Stop(const std::string& reason) {
  grpc::ClientContext context;
  SetDeadline(kBulkTimeout, &context);
  v1::StopRequest request;
  request.set_reason(reason);
  v1::StopReply reply;
  return Explain(admin_->Stop(&context, request, &reply));
}

}  // namespace lodestar
