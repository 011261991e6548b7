// These are the answers of a process to calls of services that it does not have. They tell why it
// has none and where the services are, so that a client with the wrong address learns of it.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar::rpc {

// Gets the calls of services that its server has not registered.
class CallRefusal final : public grpc::CallbackGenericService {
 public:
  // Why calls of these services are refused. Called from any thread.
  struct Services {
    std::vector<std::string> names;  // "lodestar.v1.AdminService"
    std::function<absl::Status()> reason;
  };

  explicit CallRefusal(std::vector<Services> services) : services_(std::move(services)) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  // Unimplemented for services that are none of these.
  absl::Status AnswerTo(absl::string_view method) const;

  const std::vector<Services> services_;
};

// Returns the services that only the coordinator has.
std::vector<std::string> CoordinatorServices();
// Returns the service that a coordinator has that issues certificates itself.
std::string AuthorityService();
// Returns the service that every server has.
std::string BulkService();
// Returns the service that only a replica has.
std::string ReplicaService();

// FailedPrecondition with WithCoordinator(): of the server of a shard above 0.
absl::Status NotTheCoordinator(int shard, const std::string& coordinator);

}  // namespace lodestar::rpc
