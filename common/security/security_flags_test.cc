// SPDX-License-Identifier: Apache-2.0

#include "common/security/security_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "common/runtime/local_path.h"
#include "common/testing/status_matchers.h"

ABSL_DECLARE_FLAG(std::string, join);
ABSL_DECLARE_FLAG(lodestar::LocalPath, state_dir);
ABSL_DECLARE_FLAG(lodestar::LocalPath, tls_cert);
ABSL_DECLARE_FLAG(lodestar::LocalPath, tls_key);
ABSL_DECLARE_FLAG(lodestar::LocalPath, tls_ca);
ABSL_DECLARE_FLAG(bool, insecure);

namespace lodestar::security {
namespace {

using ::testing::HasSubstr;

class SecurityFlagsTest : public ::testing::Test {
 protected:
  SecurityFlagsTest() {
    unsetenv("LODESTAR_JOIN");
    unsetenv("STATE_DIRECTORY");
    unsetenv("XDG_STATE_HOME");
    setenv("HOME", "/home/ann", 1);
  }
  ~SecurityFlagsTest() override { unsetenv("LODESTAR_JOIN"); }

  absl::FlagSaver saver_;
};

TEST_F(SecurityFlagsTest, StateIsWhereTheSystemSays) {
  EXPECT_EQ(DefaultStateDir(), "/home/ann/.local/state/lodestar");
  setenv("XDG_STATE_HOME", "/state", 1);
  EXPECT_EQ(DefaultStateDir(), "/state/lodestar");
  setenv("STATE_DIRECTORY", "/var/lib/lodestar:/var/lib/more", 1);
  EXPECT_EQ(DefaultStateDir(), "/var/lib/lodestar");
  absl::SetFlag(&FLAGS_state_dir, "mine");
  EXPECT_EQ(ReadSecurityFlags()->state_dir, "mine");
  unsetenv("STATE_DIRECTORY");
  unsetenv("XDG_STATE_HOME");
  unsetenv("HOME");
  EXPECT_EQ(DefaultStateDir(), "");
}

TEST_F(SecurityFlagsTest, AnEmptyJoinStringInTheEnvironmentIsNoPlainText) {
  setenv("LODESTAR_JOIN", "", 1);
  EXPECT_THAT(ReadSecurityFlags(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("LODESTAR_JOIN")));
  absl::SetFlag(&FLAGS_insecure, true);
  EXPECT_OK(ReadSecurityFlags());
}

TEST_F(SecurityFlagsTest, TheEnvironmentHasTheJoinStringWhereNoFlagSaysMore) {
  setenv("LODESTAR_JOIN", "lodestar://env", 1);
  EXPECT_EQ(ReadSecurityFlags()->join, "lodestar://env");
  EXPECT_TRUE(ReadSecurityFlags()->is_join_from_environment);
  absl::SetFlag(&FLAGS_join, "lodestar://flag");
  EXPECT_EQ(ReadSecurityFlags()->join, "lodestar://flag");
  EXPECT_FALSE(ReadSecurityFlags()->is_join_from_environment);
  absl::SetFlag(&FLAGS_join, "");
  absl::SetFlag(&FLAGS_insecure, true);
  EXPECT_EQ(ReadSecurityFlags()->join, "");
}

TEST_F(SecurityFlagsTest, WhatContradictsItselfIsRefused) {
  absl::SetFlag(&FLAGS_tls_cert, "c.pem");
  absl::SetFlag(&FLAGS_tls_key, "k.pem");
  EXPECT_THAT(ReadSecurityFlags(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("give all three")));
  absl::SetFlag(&FLAGS_tls_ca, "a.pem");
  const auto flags = ReadSecurityFlags();
  ASSERT_OK(flags);
  EXPECT_TRUE(flags->has_own());
  absl::SetFlag(&FLAGS_join, "lodestar://flag");
  EXPECT_THAT(ReadSecurityFlags(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--join and --tls_cert")));
  absl::SetFlag(&FLAGS_join, "");
  absl::SetFlag(&FLAGS_insecure, true);
  EXPECT_THAT(ReadSecurityFlags(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--insecure is plain text")));
}

}  // namespace
}  // namespace lodestar::security
