// SPDX-License-Identifier: Apache-2.0

// Answers calls of services that this process does not have. The answer says why, and where the
// services are, so that a client with a wrong address learns the right one.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar::rpc {

// A CallRefusal gets the calls of services that its server has not registered.
class CallRefusal final : public grpc::CallbackGenericService {
 public:
  // Services whose calls are refused, and a function that returns the reason. The function may be
  // called from any thread.
  struct Services {
    std::vector<std::string> names;  // such as "lodestar.v1.AdminService"
    std::function<absl::Status()> reason;
  };

  explicit CallRefusal(std::vector<Services> services) : services_(std::move(services)) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  // Returns the status to answer a call of `method` with. It is Unimplemented if the service of
  // `method` is in no Services::names.
  absl::Status AnswerTo(absl::string_view method) const;

  const std::vector<Services> services_;
};

// Returns the services that only the coordinator has.
std::vector<std::string> CoordinatorServices();
// Returns the service that a coordinator has only if it issues certificates itself.
std::string AuthorityService();
// Returns the service that every server has.
std::string BulkService();
// Returns the service that only a replica has.
std::string ReplicaService();

// Returns the error of the server of a shard above 0 that is asked for the coordinator's services:
// FailedPrecondition with WithCoordinator().
absl::Status NotTheCoordinator(int shard, const std::string& coordinator);

}  // namespace lodestar::rpc
