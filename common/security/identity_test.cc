// SPDX-License-Identifier: Apache-2.0

#include "common/security/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace lodestar::security {
namespace {

using ::testing::HasSubstr;

TEST(IdentityTest, AUriSaysWhoSomebodyIs) {
  const Identity identity{Role::kWorker, "gpu-box.site_2", "0a1b"};
  EXPECT_EQ(UriOf(identity), "spiffe://lodestar/worker/gpu-box.site_2/0a1b");
  const auto back = IdentityFromUri(UriOf(identity));
  ASSERT_OK(back);
  EXPECT_EQ(*back, identity);
  EXPECT_EQ(TextOf(identity), "worker gpu-box.site_2");
}

TEST(IdentityTest, CertificatesOfOthersNeedNoId) {
  const auto identity = IdentityFromUri("spiffe://example.org/operator/ann");
  ASSERT_OK(identity);
  EXPECT_EQ(*identity, (Identity{Role::kOperator, "ann", "ann"}));
}

TEST(IdentityTest, WhatIsNoIdentityIsRefused) {
  for (const char* uri :
       {"", "spiffe://", "https://lodestar/worker/a/1", "spiffe://lodestar/worker",
        "spiffe:///worker/a", "spiffe://lodestar/root/a/1", "spiffe://lodestar/worker//1",
        "spiffe://lodestar/worker/a/", "spiffe://lodestar/worker/a/1/2",
        "spiffe://lodestar/worker/a b/1", "spiffe://lodestar/worker/a\n/1",
        "spiffe://lodestar/Worker/a/1"}) {
    EXPECT_THAT(IdentityFromUri(uri), StatusIs(absl::StatusCode::kInvalidArgument)) << uri;
  }
  EXPECT_FALSE(IdentityFromUri("spiffe://lodestar/worker/" + std::string(49, 'a')).ok());
}

TEST(IdentityTest, NamesAreBoundedAndPlain) {
  EXPECT_OK(CheckIdentityName("a"));
  EXPECT_OK(CheckIdentityName(std::string(kMaxIdentityNameBytes, 'a')));
  EXPECT_THAT(CheckIdentityName(std::string(kMaxIdentityNameBytes + 1, 'a')),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("49 bytes")));
  EXPECT_THAT(CheckIdentityName("a/b"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not allowed")));
  for (const char* name : {"", ".", "..", "-_.", "-x", "--help", "_a"})
    EXPECT_FALSE(CheckIdentityName(name).ok()) << name;
}

TEST(IdentityTest, NamesOfThoseWhoHaveTheAuthoritysFolderAreKnown) {
  for (const std::string& name :
       {OwnServerName(0), OwnServerName(12), OwnReplicaName(1), std::string(kLocalOperator)}) {
    EXPECT_TRUE(IsOwnIdentityName(name)) << name;
  }
  for (const char* name : {"server-", "server-a", "server-1-0af3", "server", "replicas-1", "w0"}) {
    EXPECT_FALSE(IsOwnIdentityName(name)) << name;
  }
}

TEST(IdentityTest, AnIdentityActsAsItselfAndAsItsProcessesOnly) {
  EXPECT_TRUE(MayActAs("box", "box"));
  EXPECT_TRUE(MayActAs("box", "box.17"));
  EXPECT_FALSE(MayActAs("box", "box2"));
  EXPECT_FALSE(MayActAs("box", "bo"));
  EXPECT_FALSE(MayActAs("box.17", "box"));
  EXPECT_TRUE(AreNamesInConflict("box.17", "box"));
  EXPECT_TRUE(AreNamesInConflict("box", "box.17"));
  EXPECT_FALSE(AreNamesInConflict("box", "box-17"));
}

TEST(IdentityTest, RolesHaveNames) {
  for (const Role role : {Role::kServer, Role::kWorker, Role::kOperator, Role::kViewer}) {
    const auto back = ParseRole("--role", RoleName(role));
    ASSERT_OK(back);
    EXPECT_EQ(*back, role);
  }
  EXPECT_THAT(ParseRole("--role", "boss"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--role='boss'")));
}

}  // namespace
}  // namespace lodestar::security
