// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/join_secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kSecret(40, 'c');
const std::string kToken = absl::StrCat("L1", std::string(64, 'a'), ".0123456789abcdef.", kSecret);

TEST(JoinSecretTest, KeepsTheHostAndDropsWhatStandsBehindIt) {
  EXPECT_EQ(
      WithoutJoinSecrets(absl::StrCat("--server=lodestar://h1:5,[::1]:6/", kToken, " is none")),
      "--server=lodestar://h1:5,[::1]:6/... is none");
  EXPECT_EQ(WithoutJoinSecrets(absl::StrCat("'LODESTAR://h/", kToken, "' and '", kToken, "'")),
            "'LODESTAR://h/...' and '...'");
}

TEST(JoinSecretTest, DropsTheSecretOfADamagedJoinString) {
  for (const std::string& damaged :
       {absl::StrCat("lodestar:/h:1/", kToken), absl::StrCat("lodestar://h:1", kToken),
        absl::StrCat("lodestar://h:1\\", kToken), absl::StrCat("h:1/", kToken),
        absl::StrCat("x", kToken.substr(2)), absl::StrCat("0123456789abcdef.", kSecret),
        absl::StrCat("lodestar://\xe2\x80\x9c/", kSecret),

        absl::StrCat("lodestar://h:1/", kToken.substr(0, 80), "\xc2\xa0", kToken.substr(80))}) {
    EXPECT_TRUE(HasJoinString(damaged)) << damaged;
    EXPECT_THAT(WithoutJoinSecrets(damaged), Not(HasSubstr("cccccccc"))) << damaged;
  }
}

TEST(JoinSecretTest, DropsTheBase64OfAJoinString) {
  const std::string base64 = absl::Base64Escape(absl::StrCat("lodestar://h:1/", kToken));
  EXPECT_TRUE(HasJoinString(base64));
  EXPECT_EQ(WithoutJoinSecrets(absl::StrCat("cannot open ", base64, " here")),
            "cannot open ... here");
}

TEST(JoinSecretTest, LeavesOtherTextsAsTheyAre) {
  for (const std::string& text :
       {std::string(), std::string("L1 norm 0.5, lodestar 0.9.1 (wire 3), lodestar: a name"),
        absl::StrCat("layout ", std::string(64, 'b'), ", round-00001234.aborted"),
        std::string("joined/0123456789abcdef/worker"), std::string("lodestar://h:1"),
        std::string("lodestar://h:1/")}) {
    EXPECT_EQ(WithoutJoinSecrets(text), text);
  }
  EXPECT_FALSE(HasJoinString("joined/0123456789abcdef/worker"));
}

}  // namespace
}  // namespace lodestar
