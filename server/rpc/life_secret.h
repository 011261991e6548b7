// The secret of a life proves that a call comes from the worker that the life was given to. Ids and
// incarnations are public and easy to guess. The secret is told once, in the reply to Register. It
// is shown with every call in the worker's name, on the control connection and on data streams
// alike.
//
// It is a HMAC-SHA256 (RFC 2104), cut to 128 bits, over the life and the name in the certificate of
// the worker that registered. So a server checks it without having heard of the life, and it is of
// no use with another certificate.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/messages/cluster_messages.h"

namespace lodestar::rpc {

// A LifeClaim is what a call shows of its caller, whichever life it then speaks for.
class LifeClaim {
 public:
  // Errors: Unauthenticated if the certificate has no identity.
  static absl::StatusOr<LifeClaim> Of(const grpc::CallbackServerContext& context);
  // `holder` is the name in the caller's certificate. It is empty if the wire is plain text.
  LifeClaim(std::string holder, std::string secret)
      : holder_(std::move(holder)), secret_(std::move(secret)) {}

  // Returns the secret of a life that is given to this caller. `key` is
  // CoordinatorConfig::life_key.
  std::string SecretOf(absl::string_view key, const WorkerLife& life) const;
  // Checks that the caller lives the life. Without a key every caller does: the servers began with
  // a release that had no key. Errors: Unauthenticated, also if the right secret was damaged on its
  // way.
  absl::Status Check(absl::string_view key, const WorkerLife& life) const;

 private:
  std::string holder_;
  std::string secret_;  // empty: none was shown
};

}  // namespace lodestar::rpc
