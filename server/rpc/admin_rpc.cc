#include "server/rpc/admin_rpc.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging.h"
#include "proto/status_mapping.h"
#include "server/rpc/checkpoint_calls.h"
#include "server/rpc/weights_export.h"

namespace lodestar {
namespace {

constexpr absl::Duration kCheckpointPatience = absl::Minutes(10);
// Each holds a thread, and a bucket's memory.
constexpr int kMaxExports = 4;
// For a reader to take the next piece.
constexpr absl::Duration kReaderPatience = absl::Seconds(30);

}  // namespace

AdminRpc::AdminRpc(JobSpec job, CoordinatorStrand* strand, const ShardHost* local)
    : job_(std::move(job)), strand_(strand), local_(local), exports_(kMaxExports, "export") {}

grpc::ServerUnaryReactor* AdminRpc::Checkpoint(grpc::CallbackServerContext* context,
                                               const v1::CheckpointRequest*,
                                               v1::CheckpointReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  TakeCheckpoint(*strand_, kCheckpointPatience,
                 [reactor, reply](const absl::StatusOr<PublishedCheckpoint>& published) {
                   if (published.ok()) {
                     reply->set_path(published->path);
                     reply->set_round(published->round.value());
                   }
                   reactor->Finish(ToGrpcStatus(published.status()));
                 });
  return reactor;
}

grpc::ServerWriteReactor<v1::ExportChunk>* AdminRpc::Export(grpc::CallbackServerContext* context,
                                                            const v1::ExportRequest*) {
  const std::shared_ptr<ExportStream> stream = ExportStream::Create(context, kReaderPatience);
  if (++num_exports_ > kMaxExports) {
    --num_exports_;
    stream->End(absl::ResourceExhaustedError(
        absl::StrCat(kMaxExports,
                     " exports are under way, the most at a time; try again when one "
                     "of them is over")));
    return stream.get();
  }
  exports_.Schedule([this, stream, peer = context->peer()] {
    const absl::Status written = WriteTo(*stream);
    if (!written.ok()) LogWarn("export to peer={} has failed: {}", peer, written);
    --num_exports_;
    stream->End(written);
  });
  return stream.get();
}

absl::Status AdminRpc::WriteTo(ExportStream& stream) {
  const auto [map, version] = strand_->Run([](Coordinator& coordinator, absl::Time) {
    return std::pair(coordinator.map(), coordinator.committed_version());
  });
  if (map == nullptr) return absl::UnavailableError("the model's layout is not known yet");
  return WeightsExport(map, job_, version, local_).WriteTo([&stream](absl::string_view bytes) {
    return stream.WriteBlocking(bytes);
  });
}

grpc::ServerUnaryReactor* AdminRpc::Stop(grpc::CallbackServerContext* context,
                                         const v1::StopRequest* request, v1::StopReply*) {
  const std::string reason =
      request->reason().empty() ? "an operator asked for it" : request->reason().substr(0, 256);
  LogInfo("stop requested by peer={} reason=\"{}\"", context->peer(), reason);
  strand_->Run(
      [&](Coordinator& coordinator, absl::Time now) { coordinator.RequestStop(reason, now); });
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace lodestar
