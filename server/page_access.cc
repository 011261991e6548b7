// SPDX-License-Identifier: Apache-2.0

#include "server/page_access.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/runtime/status_macros.h"
#include "common/security/join_string.h"

namespace lodestar::server {
namespace {

constexpr char kLookMethod[] = "/lodestar.v1.StatusService/GetStatus";

}  // namespace

absl::StatusOr<http::HttpCaller> PageAccess::Judge(const http::HttpCredentials& shown,
                                                   http::HttpDeed deed) const {
  std::optional<security::Identity> caller = shown.certificate;
  if (!shown.token.empty()) {
    ASSIGN_OR_RETURN(caller, IdentityByToken(shown));
  }
  if (!caller.has_value()) {
    return absl::UnauthenticatedError(
        absl::StrCat("this page is only for viewers and operators of the job; give a certificate "
                     "of one of these roles",
                     deps_.identity_by_token == nullptr
                         ? ""
                         : ". Or give the token that `psctl token create --role=viewer` prints, as "
                           "the password or as Authorization: Bearer"));
  }
  const bool is_token = !shown.token.empty();
  const absl::Status allowed =
      deps_.check(*caller, deed == http::HttpDeed::kOrder ? PageAccess::kOrderMethod : kLookMethod);
  if (allowed.ok()) return http::HttpCaller{security::TextOf(*caller), deps_.may_order(*caller)};
  if (!absl::IsPermissionDenied(allowed)) return allowed;
  return absl::PermissionDeniedError(
      absl::StrCat(security::TextOf(*caller),
                   deed == http::HttpDeed::kOrder
                       ? " may not give orders; orders need the role operator"
                       : " may not see this page; it needs the role viewer or operator",
                   is_token ? " (psctl token create --role=...)" : ""));
}

absl::StatusOr<security::Identity> PageAccess::IdentityByToken(
    const http::HttpCredentials& shown) const {
  if (deps_.identity_by_token == nullptr) {
    return absl::UnauthenticatedError(
        "this job has no tokens, because its certificates come from another authority; give a "
        "certificate of the role viewer or operator");
  }
  std::string id;
  std::string secret;
  if (const absl::StatusOr<security::JoinString> join =
          security::ParseJoinString("the token", shown.token);
      join.ok()) {
    id = join->token_id;
    secret = join->secret;
  } else {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(shown.token, absl::MaxSplits('.', 1));
    id = std::string(parts.first);
    secret = std::string(parts.second);
  }
  absl::StatusOr<security::Identity> identity = deps_.identity_by_token(id, secret);
  if (identity.ok()) return identity;
  deps_.on_wrong_token(shown.address, identity.status());
  return absl::UnauthenticatedError(identity.status().message());
}

}  // namespace lodestar::server
