#include "server/rpc/coordinator_redirect.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_hints.h"
#include "proto/cluster_service.grpc.pb.h"
#include "proto/status_mapping.h"
#include "proto/status_service.grpc.pb.h"

namespace lodestar {
namespace {

class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

absl::Status CoordinatorRedirect::AnswerTo(absl::string_view method) const {
  for (const char* const service :
       {v1::ClusterService::service_full_name(), v1::StatusService::service_full_name(),
        v1::AdminService::service_full_name()}) {
    if (!absl::StartsWith(method, absl::StrCat("/", service, "/"))) continue;
    const std::string address = read_address_();
    return WithCoordinator(
        absl::FailedPreconditionError(absl::StrCat("this is the server of shard ", shard_,
                                                   ", not the coordinator, which is at ", address)),
        address);
  }
  return absl::UnimplementedError(absl::StrCat(method, " is no call that a ps_server knows"));
}

grpc::ServerGenericBidiReactor* CoordinatorRedirect::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  return new Refusal(AnswerTo(context->method()));
}

}  // namespace lodestar
