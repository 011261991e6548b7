#include "deploy/psctl/identity_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lodestar {
namespace {

using ::testing::HasSubstr;

TEST(IdentityCommandsTest, TimesAreThoseOfPeople) {
  const absl::Time now = absl::FromUnixMillis(1'800'000'000'500);
  v1::ListIdentitiesReply reply;
  v1::PeerIdentity* const identity = reply.add_identities();
  identity->set_role("worker");
  identity->set_name("box");
  identity->set_enrolled_unix_ms(1'800'000'000'000);
  identity->set_expires_unix_ms(absl::ToUnixMillis(now + absl::Hours(24)));
  EXPECT_THAT(IdentityTable(reply, now), HasSubstr("box   now       in 24h"));
  identity->set_revoked_unix_ms(1'800'000'000'400);
  EXPECT_THAT(IdentityTable(reply, now), HasSubstr("revoked now"));
  EXPECT_THAT(IdentityTable(reply, now + absl::Minutes(3)), HasSubstr("revoked 3m ago"));
}

TEST(IdentityCommandsTest, WhatStillLetsARevokedMachineInIsSaid) {
  v1::RevokeReply reply;
  reply.set_num_identities(1);
  reply.set_num_lives(1);
  EXPECT_EQ(RevocationText("box", reply), "box is revoked; 1 worker of it had to go\n");
  reply.set_num_identities(0);
  reply.set_num_lives(0);
  reply.add_ended_tokens("0a");
  reply.add_open_tokens("0b");
  EXPECT_EQ(RevocationText("box", reply),
            "box was revoked before; 0 workers of it had to go\n"
            "token 0a, through which it had joined, lets nobody in any more\n"
            "token 0b, through which it had joined, still lets others in, and this machine under "
            "another name: psctl token revoke 0b\n");
}

}  // namespace
}  // namespace lodestar
