// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/access_policy.h"

#include <initializer_list>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lodestar::rpc {
namespace {

struct Rule {
  absl::string_view methods;  // prefix of the methods; the first rule that matches counts
  std::initializer_list<security::Role> roles;
};

constexpr security::Role kServer = security::Role::kServer;
constexpr security::Role kWorker = security::Role::kWorker;
constexpr security::Role kOperator = security::Role::kOperator;
constexpr security::Role kViewer = security::Role::kViewer;

const std::initializer_list<Rule>& Rules() {
  static const std::initializer_list<Rule> rules = {
      {"/lodestar.v1.StatusService/", {kOperator, kViewer, kServer}},
      {"/lodestar.v1.AdminService/", {kOperator}},
      {"/lodestar.v1.AuthorityService/Renew", {kServer, kWorker, kOperator, kViewer}},
      {"/lodestar.v1.AuthorityService/ListRevoked", {kServer}},
      {"/lodestar.v1.AuthorityService/", {kOperator}},
      {"/lodestar.v1.ClusterService/AttachShard", {kServer}},
      {"/lodestar.v1.ClusterService/ReportShard", {kServer}},
      {"/lodestar.v1.ClusterService/", {kWorker}},
      {"/lodestar.v1.ParameterService/", {kWorker, kServer}},
      {"/lodestar.v1.ReplicaService/", {kServer}},
      {"/grpc.health.v1.Health/", {kServer, kWorker, kOperator, kViewer}},
      {"/grpc.reflection.", {kServer, kWorker, kOperator, kViewer}},
  };
  return rules;
}

}  // namespace

absl::Status CheckAccess(const security::Identity& caller, absl::string_view method) {
  for (const Rule& rule : Rules()) {
    if (!absl::StartsWith(method, rule.methods)) continue;
    std::string allowed;
    for (const security::Role role : rule.roles) {
      if (role == caller.role) return absl::OkStatus();
      absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", security::RoleName(role));
    }
    // A viewer is a person, who may ask an operator for more rights. Servers and workers are
    // programs.
    const bool may_ask =
        caller.role == kViewer && absl::StrContains(allowed, security::RoleName(kOperator));
    return absl::PermissionDeniedError(absl::StrCat(
        security::TextOf(caller), " may not call ", method, "; it needs the role ", allowed,
        may_ask ? ". Ask an operator for a join string of that role (psctl token "
                  "create --role=operator), and give it with --join"
                : ""));
  }
  return absl::PermissionDeniedError(absl::StrCat(security::TextOf(caller), " may not call ",
                                                  method, ", because ps_server has no such call"));
}

absl::Status CheckActsAs(const std::optional<security::Identity>& caller,
                         absl::string_view worker_name) {
  if (!caller.has_value() || security::MayActAs(caller->name, worker_name)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "the certificate is of ", security::TextOf(*caller), ", but the worker's name is '",
      worker_name, "'. The name must be '", caller->name, "', or begin with '", caller->name,
      ".'; change --name, or join with a token for that name"));
}

}  // namespace lodestar::rpc
