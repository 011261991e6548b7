// What proves that a call comes from the worker that a life was given to. Ids and incarnations are
// public and easy to guess; the secret is told once, in the reply to Register, and shown with every
// call in the worker's name, on the control connection and on data streams alike.
//
// It is a HMAC-SHA256 (RFC 2104), cut to 128 bits, over the life and the name in the certificate of
// whoever registered. So a server checks it without having heard of the life, and it is of no use
// with another certificate.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/cluster_messages.h"

namespace lodestar {

// What a call shows of its caller, whichever life it then speaks for.
class LifeClaim {
 public:
  // Errors: Unauthenticated if the certificate has no identity.
  static absl::StatusOr<LifeClaim> Of(const grpc::CallbackServerContext& context);
  // `holder`: the name in the caller's certificate; empty: the wire is plain text.
  LifeClaim(std::string holder, std::string secret)
      : holder_(std::move(holder)), secret_(std::move(secret)) {}

  // The secret of a life that is given to this caller. `key`: CoordinatorConfig::life_key.
  std::string SecretOf(absl::string_view key, const WorkerLife& life) const;
  // Whether the caller lives it. Without a key everybody does: the servers began with a release
  // that had none. Errors: Unauthenticated, also for whoever has shown the right one that was
  // damaged on its way.
  absl::Status Check(absl::string_view key, const WorkerLife& life) const;

 private:
  std::string holder_;
  std::string secret_;  // empty: none was shown
};

}  // namespace lodestar
