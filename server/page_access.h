// SPDX-License-Identifier: Apache-2.0

// PageAccess decides which callers may read the pages of ps_server --http, and give orders through
// them. The same callers may call StatusService and AdminService. It does no I/O itself. It is
// thread-safe.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/http_routes.h"
#include "common/security/identity.h"

namespace lodestar::server {

class PageAccess {
 public:
  // Method that stands for all orders: a caller that may call this method may give every order.
  static constexpr char kOrderMethod[] = "/lodestar.v1.AdminService/Pause";

  struct Deps {
    // Checks that the caller may call the method, like an AccessCheck does for gRPC calls.
    std::function<absl::Status(const security::Identity& caller, absl::string_view method)> check;
    // Returns true if the role of `caller` may give orders. Unlike `check`, it logs and counts
    // nothing.
    std::function<bool(const security::Identity& caller)> may_order;
    // Returns the identity of a token: see CertificateAuthority. Null means that there are no
    // tokens.
    std::function<absl::StatusOr<security::Identity>(absl::string_view token_id,
                                                     absl::string_view secret)>
        identity_by_token;
    // Called if a program at `address` has shown an invalid token.
    std::function<void(const std::string& address, const absl::Status& refusal)> on_wrong_token;
  };

  explicit PageAccess(Deps deps) : deps_(std::move(deps)) {}

  // Returns the caller if it may do `deed`: look at the pages, or give an order. If both a token
  // and a certificate are shown, the token counts, because browsers show certificates without being
  // asked. `shown.token` is a join string, or the part after its hash: ID.SECRET. For the errors
  // see HttpAccess.
  absl::StatusOr<http::HttpCaller> Judge(const http::HttpCredentials& shown,
                                         http::HttpDeed deed) const;

 private:
  absl::StatusOr<security::Identity> IdentityByToken(const http::HttpCredentials& shown) const;

  const Deps deps_;
};

}  // namespace lodestar::server
