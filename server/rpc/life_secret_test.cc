// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/life_secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "common/testing/status_matchers.h"

namespace lodestar::rpc {
namespace {

using ::testing::HasSubstr;

constexpr char kKey[] = "a key";
const messages::WorkerLife kLife{WorkerId(3), Incarnation(17)};

absl::Status Show(const std::string& holder, const std::string& secret,
                  const messages::WorkerLife& life = kLife, absl::string_view key = kKey) {
  return LifeClaim(holder, secret).Check(key, life);
}

std::string SecretOf(const std::string& holder, const messages::WorkerLife& life = kLife,
                     absl::string_view key = kKey) {
  return LifeClaim(holder, "").SecretOf(key, life);
}

auto IsAnothers() {
  return StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("worker 3 (incarnation 17)"));
}

TEST(LifeSecretTest, WhoeverWasToldTheSecretMayCall) {
  EXPECT_EQ(SecretOf("a").size(), 32);
  EXPECT_OK(Show("a", SecretOf("a")));
  EXPECT_OK(Show("", SecretOf("")));
}

TEST(LifeSecretTest, AnotherLifeHolderOrKeyHasAnotherSecret) {
  const messages::WorkerLife next{kLife.worker, Incarnation(18)};
  const messages::WorkerLife other{WorkerId(4), kLife.incarnation};
  const std::set<std::string> secrets = {SecretOf("a"),        SecretOf("b"),
                                         SecretOf(""),         SecretOf("a", next),
                                         SecretOf("a", other), SecretOf("a", kLife, "other key")};
  EXPECT_EQ(secrets.size(), 6);
  for (const std::string& secret : secrets) {
    if (secret == SecretOf("a")) continue;
    EXPECT_THAT(Show("a", secret), IsAnothers());
  }
}

TEST(LifeSecretTest, WhatIsNoSecretIsRefused) {
  EXPECT_THAT(Show("a", ""),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("RegisterReply.life_secret")));
  EXPECT_THAT(Show("a", "0"), IsAnothers());
  EXPECT_THAT(Show("a", SecretOf("a") + "0"), IsAnothers());
}

TEST(LifeSecretTest, WithoutAKeyNothingIsAskedFor) { EXPECT_OK(Show("a", "", kLife, "")); }

}  // namespace
}  // namespace lodestar::rpc
