// SPDX-License-Identifier: Apache-2.0

#include "server/membership/registration_limit.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_hints.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/membership/membership_table.h"

namespace lodestar::membership {
namespace {

using ::testing::HasSubstr;

TEST(PeerOriginTest, IsWhatAPeerCannotChangeAtWill) {
  EXPECT_EQ(PeerOrigin("ipv4:10.1.2.3:4242"), "10.1.2.3");
  EXPECT_EQ(PeerOrigin("ipv4:127.0.0.1:4242"), "loopback");
  EXPECT_EQ(PeerOrigin("ipv6:%5B::1%5D:4242"), "loopback");
  EXPECT_EQ(PeerOrigin("ipv6:[::1]:4242"), "loopback");
  EXPECT_EQ(PeerOrigin("unix:"), "loopback");
  EXPECT_EQ(PeerOrigin("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:1"), "2001:db8:1:2::/64");
  EXPECT_EQ(PeerOrigin("ipv6:%5B2001:db8:1:2:9:9:9:9%5D:1"), "2001:db8:1:2::/64");
  EXPECT_EQ(PeerOrigin("ipv6:%5Bfe80::1%25eth0%5D:1"), "fe80::/64");
  EXPECT_EQ(PeerOrigin("ipv6:%5B::ffff:10.1.2.3%5D:1"), "10.1.2.3");
}

class RegistrationLimitTest : public testing::Test {
 protected:
  // Returns how many of `num` registrations are accepted.
  int Flood(const std::string& peer, int num) {
    int taken = 0;
    for (int i = 0; i < num; ++i) taken += limit_.Take(absl::StrCat(peer, ":", i), now_).ok();
    return taken;
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  RegistrationLimit limit_{
      RegistrationLimit::Config{.per_origin = 60, .from_loopback = 600, .in_all = 1000}};
};

TEST_F(RegistrationLimitTest, AFloodFromOneAddressLeavesRoomForOthers) {
  EXPECT_EQ(Flood("ipv4:10.0.0.1", 10'000), 60);
  EXPECT_EQ(Flood("ipv4:127.0.0.1", 10'000), 600);
  const absl::Status refused = limit_.Take("ipv4:10.0.0.1:1", now_);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("10.0.0.1")));
  EXPECT_EQ(RetryAfterOf(refused), absl::Seconds(1));
  EXPECT_OK(limit_.Take("ipv4:10.0.0.2:1", now_));
  now_ += absl::Seconds(1);
  EXPECT_EQ(Flood("ipv4:10.0.0.1", 100), 1);
  now_ += absl::Hours(1);
  EXPECT_EQ(Flood("ipv4:10.0.0.1", 100), 60) << "not more for having waited longer";
}

TEST_F(RegistrationLimitTest, AFloodFromManyAddressesEndsAtTheLimitOfAll) {
  int taken = 0;
  for (int i = 0; i < 256; ++i) taken += Flood(absl::StrCat("ipv4:10.0.0.", i), 100);
  EXPECT_EQ(taken, 1000);
  EXPECT_THAT(limit_.Take("ipv4:10.1.1.1:1", now_),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("in all")));
  now_ += absl::Minutes(2);
  EXPECT_OK(limit_.Take("ipv4:10.1.1.1:1", now_));
  EXPECT_EQ(limit_.num_origins(), 1u) << "those of the flood are forgotten";
}

TEST_F(RegistrationLimitTest, AClockThatGoesBackGivesNothing) {
  EXPECT_EQ(Flood("ipv4:10.0.0.1", 100), 60);
  now_ -= absl::Hours(1);
  EXPECT_EQ(Flood("ipv4:10.0.0.1", 100), 0);
}

// For a quarter of an hour, clients register as fast as the limit allows. Each registration has a
// new name, and half of the workers keep renewing their leases.
TEST_F(RegistrationLimitTest, NobodyIsShutOutByThoseWhoRegisterAndNeverJoin) {
  MembershipTable table(MembershipTable::Config{.lease = absl::Hours(2)});
  const auto worker = table.Register("worker", 1, now_);
  ASSERT_OK(worker);
  ASSERT_OK(table.Join(worker->id, worker->incarnation, now_));
  int num_names = 0;
  for (int second = 0; second < 900; ++second) {
    now_ += absl::Seconds(1);
    for (int host = 0; host < 40; ++host) {
      if (!limit_.Take(absl::StrCat("ipv4:10.0.0.", host, ":1"), now_).ok()) continue;
      ASSERT_OK(table.Register(absl::StrCat("flood-", ++num_names), 2, now_));
    }
    ASSERT_OK(table.Renew(worker->id, worker->incarnation, now_));
    table.Expire(now_);
  }
  EXPECT_GT(num_names, 10'000);
  EXPECT_LE(table.workers().size(), MembershipTable::kMaxWaiting +
                                        MembershipTable::kMaxEndedStrangers + 1 +
                                        1000);  // seconds since the last look
  const auto newcomer = table.Register("newcomer", 3, now_);
  ASSERT_OK(newcomer);
  EXPECT_OK(table.Join(newcomer->id, newcomer->incarnation, now_));
  EXPECT_TRUE(table.Find(worker->id)->is_member());
}

}  // namespace
}  // namespace lodestar::membership
