// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/access_policy.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "proto/authority_service.pb.h"
#include "proto/cluster_service.pb.h"
#include "proto/parameter_service.pb.h"
#include "proto/replica_service.pb.h"
#include "proto/status_service.pb.h"

namespace lodestar::rpc {
namespace {

using ::testing::HasSubstr;

std::set<std::string> RolesThatMayCall(const std::string& method) {
  std::set<std::string> roles;
  for (const security::Role role : {security::Role::kServer, security::Role::kWorker,
                                    security::Role::kOperator, security::Role::kViewer}) {
    if (CheckAccess({role, "x", "1"}, method).ok()) roles.emplace(security::RoleName(role));
  }
  return roles;
}

TEST(AccessPolicyTest, EveryMethodThatThereIsHasItsRoles) {
  const std::map<std::string, std::set<std::string>> of_service = {
      {"StatusService", {"operator", "server", "viewer"}},
      {"AdminService", {"operator"}},
      {"AuthorityService", {"operator"}},
      {"ClusterService", {"worker"}},
      {"ParameterService", {"server", "worker"}},
      {"ReplicaService", {"server"}},
  };
  const std::map<std::string, std::set<std::string>> of_method = {
      {"AuthorityService/ListRevoked", {"server"}},
      {"AuthorityService/Renew", {"operator", "server", "viewer", "worker"}},
      {"ClusterService/AttachShard", {"server"}},
      {"ClusterService/ReportShard", {"server"}},
  };
  size_t num_services = 0;
  for (const google::protobuf::FileDescriptor* file :
       {v1::GetStatusRequest::descriptor()->file(), v1::RenewRequest::descriptor()->file(),
        v1::RegisterRequest::descriptor()->file(), v1::PullRequest::descriptor()->file(),
        v1::BeginTermRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i, ++num_services) {
      const google::protobuf::ServiceDescriptor& service = *file->service(i);
      for (int j = 0; j < service.method_count(); ++j) {
        const std::string name = absl::StrCat(service.name(), "/", service.method(j)->name());
        const auto special = of_method.find(name);
        ASSERT_EQ(of_service.count(service.name()), 1) << name << " has no roles";
        EXPECT_EQ(RolesThatMayCall(absl::StrCat("/lodestar.v1.", name)),
                  special == of_method.end() ? of_service.at(service.name()) : special->second)
            << name;
      }
    }
  }
  EXPECT_EQ(num_services, of_service.size());
}

TEST(AccessPolicyTest, WhatIsNotKnownIsForNobody) {
  EXPECT_TRUE(RolesThatMayCall("/lodestar.v1.NewService/Do").empty());
  EXPECT_TRUE(RolesThatMayCall("").empty());
  EXPECT_TRUE(RolesThatMayCall("/lodestar.v1.AdminServic").empty());
  EXPECT_EQ(RolesThatMayCall("/grpc.health.v1.Health/Check").size(), 4);
}

TEST(AccessPolicyTest, ARefusalNamesTheCallerAndWhoMay) {
  EXPECT_THAT(
      CheckAccess({security::Role::kWorker, "box", "1"}, "/lodestar.v1.AdminService/Stop"),
      StatusIs(
          absl::StatusCode::kPermissionDenied,
          "worker box may not call /lodestar.v1.AdminService/Stop; it needs the role operator"));
  EXPECT_THAT(CheckAccess({security::Role::kViewer, "bob", "1"}, "/lodestar.v1.AdminService/Stop"),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("it needs the role operator. Ask an operator for a join string "
                                 "of that role (psctl token create --role=operator)")));
}

TEST(AccessPolicyTest, AWorkerSpeaksForItself) {
  const security::Identity box{security::Role::kWorker, "box", "1"};
  EXPECT_OK(CheckActsAs(box, "box"));
  EXPECT_OK(CheckActsAs(box, "box.7"));
  EXPECT_OK(CheckActsAs(std::nullopt, "box"));
  EXPECT_THAT(CheckActsAs(box, "other"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("'other'")));
}

}  // namespace
}  // namespace lodestar::rpc
