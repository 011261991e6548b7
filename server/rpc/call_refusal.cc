#include "server/rpc/call_refusal.h"

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

absl::Status CallRefusal::AnswerTo(absl::string_view method) const {
  for (const char* const service :
       {v1::ClusterService::service_full_name(), v1::StatusService::service_full_name(),
        v1::AdminService::service_full_name()}) {
    if (absl::StartsWith(method, absl::StrCat("/", service, "/"))) return reason_();
  }
  return absl::UnimplementedError(absl::StrCat(method, " is no call that a ps_server knows"));
}

grpc::ServerGenericBidiReactor* CallRefusal::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  return new Refusal(AnswerTo(context->method()));
}

absl::Status NotTheCoordinator(int shard, const std::string& coordinator) {
  return WithCoordinator(absl::FailedPreconditionError(
                             absl::StrCat("this is the server of shard ", shard,
                                          ", not the coordinator, which is at ", coordinator)),
                         coordinator);
}

}  // namespace lodestar
