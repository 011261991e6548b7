// What a server that is not the coordinator answers to calls for the coordinator: that it is not,
// and where the coordinator is, so that a client with the wrong address finds it.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar {

// Gets the calls of services that this server has not registered.
class CoordinatorRedirect final : public grpc::CallbackGenericService {
 public:
  // HOST:PORT of the coordinator, as far as known. Called from any thread.
  using AddressReader = std::function<std::string()>;

  CoordinatorRedirect(int shard, AddressReader read_address)
      : shard_(shard), read_address_(std::move(read_address)) {}

  // FailedPrecondition with WithCoordinator(); Unimplemented for services that no server has.
  absl::Status AnswerTo(absl::string_view method) const;

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  const int shard_;
  const AddressReader read_address_;
};

}  // namespace lodestar
