// SPDX-License-Identifier: Apache-2.0

#include "common/security/identity.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/worker_name.h"

namespace lodestar::security {
namespace {

constexpr absl::string_view kScheme = "spiffe://";
constexpr char kDomain[] = "lodestar";
constexpr int kMaxUriBytes = 512;
constexpr char kOwnServer[] = "server-";
constexpr char kOwnReplica[] = "replica-";
constexpr Role kRoles[] = {Role::kServer, Role::kWorker, Role::kOperator, Role::kViewer};

bool IsPrefixAndNumber(absl::string_view text, absl::string_view prefix) {
  return absl::ConsumePrefix(&text, prefix) && !text.empty() &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

}  // namespace

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kServer:
      return "server";
    case Role::kWorker:
      return "worker";
    case Role::kOperator:
      return "operator";
    case Role::kViewer:
      return "viewer";
  }
  return "unknown";
}

absl::StatusOr<Role> ParseRole(absl::string_view what, absl::string_view text) {
  for (const Role role : kRoles) {
    if (text == RoleName(role)) return role;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, "='", text, "' is unknown; allowed: worker, server, operator, viewer"));
}

absl::Status CheckIdentityName(absl::string_view name) {
  return CheckName("identity", name, kMaxIdentityNameBytes);
}

std::string OwnServerName(int shard) { return absl::StrCat(kOwnServer, shard); }

std::string OwnReplicaName(int shard) { return absl::StrCat(kOwnReplica, shard); }

bool IsOwnIdentityName(absl::string_view name) {
  return name == kLocalOperator || IsPrefixAndNumber(name, kOwnServer) ||
         IsPrefixAndNumber(name, kOwnReplica);
}

std::string TextOf(const Identity& identity) {
  return absl::StrCat(RoleName(identity.role), " ", identity.name);
}

std::string UriOf(const Identity& identity) {
  return absl::StrCat(kScheme, kDomain, "/", RoleName(identity.role), "/", identity.name, "/",
                      identity.id);
}

absl::StatusOr<Identity> IdentityFromUri(absl::string_view uri) {
  const absl::Status refusal = absl::InvalidArgumentError(
      "the identity does not have the form spiffe://DOMAIN/ROLE/NAME, where ROLE is worker, "
      "server, operator or viewer");
  if (uri.size() > kMaxUriBytes || !absl::ConsumePrefix(&uri, kScheme)) return refusal;
  const std::vector<absl::string_view> parts = absl::StrSplit(uri, '/');
  if (parts.size() < 3 || parts.size() > 4 || parts[0].empty()) return refusal;
  const absl::StatusOr<Role> role = ParseRole("role", parts[1]);
  if (!role.ok() || !CheckIdentityName(parts[2]).ok()) return refusal;
  const absl::string_view id = parts.back();
  if (!CheckRecordedName("id", id, kMaxUriBytes).ok()) return refusal;
  return Identity{*role, std::string(parts[2]), std::string(id)};
}

bool MayActAs(absl::string_view name, absl::string_view worker_name) {
  if (!absl::ConsumePrefix(&worker_name, name)) return false;
  return worker_name.empty() || worker_name.front() == '.';
}

bool AreNamesInConflict(absl::string_view a, absl::string_view b) {
  return MayActAs(a, b) || MayActAs(b, a);
}

}  // namespace lodestar::security
