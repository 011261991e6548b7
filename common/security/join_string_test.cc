// SPDX-License-Identifier: Apache-2.0

#include "common/security/join_string.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/security/secret_file.h"
#include "common/testing/status_matchers.h"

namespace lodestar::security {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kHash(64, 'a');
const std::string kLine = absl::StrCat("lodestar://h1:50051,[::1]:50052/L1", kHash, ".0b1c.5ec2e7");

TEST(JoinStringTest, HasAddressesHashAndToken) {
  const auto join = ParseJoinString("--join", absl::StrCat("  ", kLine, "\n"));
  ASSERT_OK(join);
  EXPECT_EQ(join->servers, "h1:50051,[::1]:50052");
  EXPECT_EQ(join->authority_sha256, kHash);
  EXPECT_EQ(join->token_id, "0b1c");
  EXPECT_EQ(join->secret, "5ec2e7");
  EXPECT_EQ(join->ToString(), kLine);
}

TEST(JoinStringTest, IgnoresWhatFilesShellsAndContainersLeaveAroundTheLine) {
  for (const std::string& line :
       {absl::StrCat("\"", kLine, "\""), absl::StrCat("'", kLine, "'\r\n"),
        absl::StrCat("\xef\xbb\xbf", kLine), absl::StrCat("LODESTAR_JOIN=", kLine),
        absl::StrCat("export LODESTAR_JOIN=\"", kLine, "\"\n"), absl::StrCat(" --join=", kLine)}) {
    const auto join = ReadJoinString("--join", line);
    ASSERT_OK(join) << line;
    EXPECT_EQ(join->ToString(), kLine);
  }
}

TEST(JoinStringTest, NamesTheCharacterInTheWayAndNeverTheSecret) {
  const struct {
    std::string line;
    std::string named;
  } kCases[] = {{absl::StrCat("\xe2\x80\x9c", kLine), "\xe2\x80\x9c"},
                {absl::StrCat("\xe2\x80\x8b", kLine), "\\u200b"},
                {absl::StrCat("lodestar://h1:1/L1", kHash, ".0b. 5ec2e7"), "a space"},
                {absl::StrCat("lodestar://h1:1/L1", kHash, ".0b.5ec2e7;"), "character 77"},
                {absl::StrCat("--token=", kLine), "8 other bytes"},
                {absl::Base64Escape(kLine), "base64"},
                {std::string("\"\""), "empty"},
                {std::string("LODESTAR_JOIN="), "empty"}};
  for (const auto& [line, named] : kCases) {
    EXPECT_THAT(ReadJoinString("$LODESTAR_JOIN", line).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("$LODESTAR_JOIN: not a join string"), HasSubstr(named),
                               Not(HasSubstr("5ec2e7")))))
        << line;
  }
}

TEST(JoinStringTest, WhatIsNoneIsRefusedWithoutTheSecretInTheText) {
  for (const std::string& line :
       {std::string("lodestar://"), absl::StrCat("lodestar://h1/L1", kHash, ".0b.5ec2e7"),
        absl::StrCat("lodestar://h1:1/L2", kHash, ".0b.5ec2e7"),
        absl::StrCat("lodestar://h1:1/L1", kHash.substr(1), ".0b.5ec2e7"),
        absl::StrCat("lodestar://h1:1/L1", kHash, ".0b"),
        absl::StrCat("lodestar://h1:1/L1", kHash, ".0b.5ec2e7."),
        absl::StrCat("lodestar://h1:1/L1", kHash, ".0b.5ec2e7/x"),
        absl::StrCat("lodestar://h1:1/L1", kHash, ".zz.5ec2e7"),
        absl::StrCat("lodestar://unix:x/L1", kHash, ".0b.5ec2e7"),
        absl::StrCat("lodestar://h1:1/L1", kHash, ".0b.5ec2e7", std::string(5000, '0'))}) {
    const auto join = ParseJoinString("--join", line);
    EXPECT_THAT(join.status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("--join: not a join string"), Not(HasSubstr("5ec2e7")))))
        << line;
  }
}

TEST(JoinStringTest, AFileMayHoldItThatNobodyElseMayRead) {
  const std::string path = ::testing::TempDir() + "/join_string_file";
  ASSERT_OK(WriteSecretFile(path, kLine + "\n"));
  const auto join = ReadJoinString("--join", path);
  ASSERT_OK(join);
  EXPECT_EQ(join->ToString(), kLine);
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_THAT(ReadJoinString("--join", path).status(),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("--join: " + path), HasSubstr("mode 0644"),
                             HasSubstr("chmod 600 " + path))));
  EXPECT_THAT(
      ReadJoinString("--join", "host:50051").status(),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("as `psctl token create` prints it")));
}

}  // namespace
}  // namespace lodestar::security
