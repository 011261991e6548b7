// Decides which callers may look at the pages of ps_server --http, and give orders through them.
// They are those that may call StatusService and AdminService. Pure but for what it is given.
// Thread-safe.
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
  // A caller that may give orders may make this call.
  static constexpr char kOrderMethod[] = "/lodestar.v1.AdminService/Pause";

  struct Deps {
    // Decides as an AccessCheck does for calls.
    std::function<absl::Status(const Identity& caller, absl::string_view method)> check;
    // Returns true if the role of `caller` may give orders. Unlike `check`, it leaves no trace.
    std::function<bool(const Identity& caller)> may_order;
    // See CertificateAuthority. Null means that there are no tokens.
    std::function<absl::StatusOr<Identity>(absl::string_view token_id, absl::string_view secret)>
        identity_by_token;
    // A program at `address` has shown a token that does not count.
    std::function<void(const std::string& address, const absl::Status& refusal)> on_wrong_token;
  };

  explicit PageAccess(Deps deps) : deps_(std::move(deps)) {}

  // A token counts before a certificate, which browsers show unasked. It is a join string, or what
  // is behind its hash: ID.SECRET. See HttpAccess.
  absl::StatusOr<HttpCaller> Judge(const HttpCredentials& shown, HttpDeed deed) const;

 private:
  absl::StatusOr<Identity> IdentityByToken(const HttpCredentials& shown) const;

  const Deps deps_;
};

}  // namespace lodestar::server
