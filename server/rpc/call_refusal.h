// What a process answers to calls of services that it does not have: why, and where they are, so
// that a client with the wrong address learns of it.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar {

// Gets the calls of services that its server has not registered.
class CallRefusal final : public grpc::CallbackGenericService {
 public:
  // Why calls of the coordinator's services are refused. Called from any thread.
  using Reason = std::function<absl::Status()>;

  explicit CallRefusal(Reason reason) : reason_(std::move(reason)) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  // Unimplemented for services that no server has.
  absl::Status AnswerTo(absl::string_view method) const;

  const Reason reason_;
};

// FailedPrecondition with WithCoordinator(): of the server of a shard above 0.
absl::Status NotTheCoordinator(int shard, const std::string& coordinator);

}  // namespace lodestar
