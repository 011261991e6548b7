// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/stragglers/member_pushes.h"

#include <gtest/gtest.h>

namespace lodestar::stragglers {
namespace {

class MemberPushesTest : public testing::Test {
 protected:
  static constexpr sync::Pusher kMember = {WorkerId(1), Incarnation(7)};

  static sync::UnfinishedPush PushOf(int64_t round, uint32_t bucket, int64_t received_bytes) {
    return {kMember, Round(round), bucket, received_bytes, 100};
  }
  // Delivers a report of a server in which `push` is unfinished and no push of the member is held.
  void Hear(const sync::UnfinishedPush& push, bool others_wait = false, int shard = 0) {
    sync::PushSpace space = {.unfinished = {push}, .held = {}};
    if (others_wait) space.held = {{WorkerId(2), Incarnation(3)}};
    pushes_.OnSpace(shard, space, kMember, now_);
  }
  void HearNothing(int shard = 0) { pushes_.OnSpace(shard, {}, kMember, now_); }
  // Returns the unfinished push of the only shard that has one.
  MemberPushes::Unfinished Only() {
    EXPECT_EQ(pushes_.unfinished().size(), 1);
    return pushes_.unfinished().front();
  }

  MemberPushes pushes_;
  const absl::Time start_ = absl::FromUnixSeconds(1'700'000'000);
  absl::Time now_ = start_;
};

TEST_F(MemberPushesTest, PushThatIsBegunAnewCountsFromItsFirstCall) {
  Hear(PushOf(3, 1, 60));
  now_ += absl::Seconds(9);
  HearNothing();
  EXPECT_TRUE(pushes_.unfinished().empty());
  now_ += absl::Seconds(1);
  Hear(PushOf(3, 1, 2));
  EXPECT_EQ(Only().since, start_);
  EXPECT_EQ(Only().received_bytes, 60) << "that a connection is cut costs nothing";
  Hear(PushOf(3, 1, 80));
  EXPECT_EQ(Only().received_bytes, 80);
}

TEST_F(MemberPushesTest, TellsSinceWhenNothingHasCome) {
  sync::UnfinishedPush push = PushOf(3, 1, 60);
  Hear(push);
  EXPECT_EQ(Only().silent_since, absl::InfiniteFuture());
  push.silence = absl::Seconds(4);
  now_ += absl::Seconds(5);
  Hear(push);
  EXPECT_EQ(Only().silent_since, start_ + absl::Seconds(1));
  push.silence = absl::ZeroDuration();
  Hear(push);
  EXPECT_EQ(Only().silent_since, absl::InfiniteFuture());
}

TEST_F(MemberPushesTest, OtherBucketShardOrRoundIsAnotherPush) {
  Hear(PushOf(3, 1, 60));
  now_ += absl::Seconds(9);
  Hear(PushOf(3, 2, 0));
  EXPECT_EQ(Only().since, now_);
  Hear(PushOf(4, 1, 0));
  EXPECT_EQ(Only().since, now_);
  Hear(PushOf(4, 1, 0), /*others_wait=*/false, /*shard=*/1);
  ASSERT_EQ(pushes_.unfinished().size(), 2);
  EXPECT_EQ(pushes_.unfinished()[1].shard, 1);
}

TEST_F(MemberPushesTest, GrantForgetsAllPushesButTheOneUnderWay) {
  Hear(PushOf(3, 1, 60), /*others_wait=*/true);
  Hear(PushOf(3, 2, 10), /*others_wait=*/true);
  now_ += absl::Seconds(9);
  pushes_.OnGrant();
  Hear(PushOf(3, 2, 10), /*others_wait=*/true);
  EXPECT_EQ(Only().since, start_);
  EXPECT_EQ(Only().space_kept_since, start_) << "others wait for it all the same";
  Hear(PushOf(3, 1, 10), /*others_wait=*/true);
  EXPECT_EQ(Only().since, now_);
  EXPECT_EQ(Only().space_kept_since, now_) << "what was under way is whole";
}

// Servers report once a second. A round may begin and end between two reports.
TEST_F(MemberPushesTest, PushThatWasWholeBeforeTheGrantKeepsNoSpace) {
  Hear(PushOf(3, 1, 60), /*others_wait=*/true);
  now_ += absl::Milliseconds(200);  // meanwhile the push becomes whole and is reported
  pushes_.OnGrant();
  now_ += absl::Milliseconds(800);
  Hear(PushOf(4, 1, 60), /*others_wait=*/true);
  EXPECT_EQ(Only().since, now_);
  EXPECT_EQ(Only().space_kept_since, now_);
  pushes_.OnGrant();
  HearNothing();
  pushes_.OnGrant();
  now_ += absl::Seconds(1);
  Hear(PushOf(4, 1, 0), /*others_wait=*/true);
  EXPECT_EQ(Only().since, now_);
  EXPECT_EQ(Only().space_kept_since, now_);
}

TEST_F(MemberPushesTest, TimeForWhichThePushIsHeldDoesNotCount) {
  Hear(PushOf(3, 1, 60), /*others_wait=*/true);
  now_ += absl::Seconds(1);
  const sync::PushSpace held = {.unfinished = {}, .held = {kMember}};
  pushes_.OnSpace(0, held, kMember, now_);
  now_ += absl::Seconds(30);
  pushes_.OnSpace(0, held, kMember, now_);
  now_ += absl::Seconds(30);
  Hear(PushOf(3, 1, 60), /*others_wait=*/true);
  EXPECT_EQ(Only().since, start_ + absl::Minutes(1));
  EXPECT_EQ(Only().space_kept_since, start_ + absl::Minutes(1));
  // The member has space for one push, while another of its pushes must wait.
  const sync::PushSpace both = {.unfinished = {PushOf(3, 1, 60)}, .held = {kMember}};
  pushes_.OnSpace(0, both, kMember, now_);
  now_ += absl::Minutes(9);
  pushes_.OnSpace(0, both, kMember, now_);
  EXPECT_EQ(Only().since, start_ + absl::Minutes(1));
  // Another server makes a push of the member wait.
  pushes_.OnSpace(1, held, kMember, now_);
  now_ += absl::Minutes(9);
  pushes_.OnSpace(1, held, kMember, now_);
  EXPECT_EQ(Only().since, start_ + absl::Minutes(1));
}

TEST_F(MemberPushesTest, TellsOfHoldingAndSpaceByTheLastSignOfLifeOfEachShard) {
  EXPECT_FALSE(pushes_.is_held());
  EXPECT_FALSE(pushes_.keeps_space());
  pushes_.OnSpace(0, {.unfinished = {}, .held = {kMember}}, kMember, now_);
  Hear(PushOf(3, 1, 60), /*others_wait=*/true, /*shard=*/1);
  EXPECT_TRUE(pushes_.is_held());
  EXPECT_TRUE(pushes_.keeps_space());
  now_ += absl::Seconds(1);
  HearNothing(0);
  HearNothing(1);
  EXPECT_FALSE(pushes_.is_held());
  EXPECT_EQ(pushes_.held_at(), start_);
  EXPECT_FALSE(pushes_.keeps_space());
  now_ += absl::Seconds(1);
  Hear(PushOf(3, 2, 0), /*others_wait=*/true, /*shard=*/1);
  EXPECT_EQ(Only().space_kept_since, start_) << "a push that stops for a moment gains nothing";
  EXPECT_EQ(Only().told_at, now_);
}

}  // namespace
}  // namespace lodestar::stragglers
