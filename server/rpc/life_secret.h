// SPDX-License-Identifier: Apache-2.0

// The secret of an incarnation proves that a call comes from the worker that the incarnation was
// given to. Ids and incarnations are public and easy to guess. The secret is sent once, in the
// reply to Register. The worker sends it with every call, on the control connection and on data
// streams.
//
// The secret is an HMAC-SHA256 (RFC 2104), cut to 128 bits. Its input is the incarnation and the
// name in the worker's certificate. So a server needs only the key to check a secret: it needs no
// list of incarnations. With another certificate the secret is wrong.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/messages/cluster_messages.h"

namespace lodestar::rpc {

// A LifeClaim has the caller's name and the secret that a call shows. It says for which
// incarnations the caller may speak.
class LifeClaim {
 public:
  // Reads the name and the secret from the metadata of a call. Errors: Unauthenticated (the
  // certificate has no identity).
  static absl::StatusOr<LifeClaim> Of(const grpc::CallbackServerContext& context);
  // `holder` is the name in the caller's certificate. It is empty if the wire is plain text.
  LifeClaim(std::string holder, std::string secret)
      : holder_(std::move(holder)), secret_(std::move(secret)) {}

  // Returns the secret of an incarnation that is given to this caller. `key` is
  // CoordinatorConfig::life_key.
  std::string SecretOf(absl::string_view key, const messages::WorkerLife& life) const;
  // Checks that the caller's secret is that of the incarnation. If `key` is empty, every caller
  // passes, because the incarnations have no secrets. Errors: Unauthenticated (the secret is
  // missing or wrong).
  absl::Status Check(absl::string_view key, const messages::WorkerLife& life) const;

 private:
  std::string holder_;
  std::string secret_;  // empty: the call showed no secret
};

}  // namespace lodestar::rpc
