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

}  // namespace

AdminRpc::AdminRpc(JobSpec job, CoordinatorStrand* strand, const ShardHost* local)
    : job_(std::move(job)), strand_(strand), local_(local), exports_(1, "export") {}

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

grpc::ServerWriteReactor<v1::ExportChunk>* AdminRpc::Export(grpc::CallbackServerContext*,
                                                            const v1::ExportRequest*) {
  const std::shared_ptr<ExportStream> stream = ExportStream::Create();
  exports_.Schedule([this, stream] {
    const auto [map, version] = strand_->Run([](Coordinator& coordinator, absl::Time) {
      return std::pair(coordinator.map(), coordinator.committed_version());
    });
    if (map == nullptr) {
      return stream->End(absl::UnavailableError("the model's layout is not known yet"));
    }
    const WeightsExport weights(map, job_, version, local_);
    stream->End(weights.WriteTo(
        [&stream](absl::string_view bytes) { return stream->WriteBlocking(bytes); }));
  });
  return stream.get();
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
