// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/call_refusal.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/status_hints.h"
#include "proto/authority_service.grpc.pb.h"
#include "proto/cluster_service.grpc.pb.h"
#include "proto/parameter_service.grpc.pb.h"
#include "proto/replica_service.grpc.pb.h"
#include "proto/status_mapping.h"
#include "proto/status_service.grpc.pb.h"

namespace lodestar::rpc {
namespace {

class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const absl::Status& status) { Finish(wire::ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

std::vector<std::string> CoordinatorServices() {
  return {v1::ClusterService::service_full_name(), v1::StatusService::service_full_name(),
          v1::AdminService::service_full_name(), v1::AuthorityService::service_full_name()};
}

std::string AuthorityService() { return v1::AuthorityService::service_full_name(); }

std::string BulkService() { return v1::ParameterService::service_full_name(); }

std::string ReplicaService() { return v1::ReplicaService::service_full_name(); }

absl::Status CallRefusal::AnswerTo(absl::string_view method) const {
  for (const Services& services : services_) {
    for (const std::string& name : services.names) {
      if (absl::StartsWith(method, absl::StrCat("/", name, "/"))) return services.reason();
    }
  }
  return absl::UnimplementedError(absl::StrCat(
      method, " is not a call of this server's release; use the same release on both sides"));
}

grpc::ServerGenericBidiReactor* CallRefusal::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  return new Refusal(AnswerTo(context->method()));
}

absl::Status NotTheCoordinator(int shard, const std::string& coordinator) {
  return WithCoordinator(absl::FailedPreconditionError(
                             absl::StrCat("this address has the server of shard ", shard,
                                          ", not the coordinator, which is at ", coordinator)),
                         coordinator);
}

}  // namespace lodestar::rpc
