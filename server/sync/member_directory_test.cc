// SPDX-License-Identifier: Apache-2.0

#include "server/sync/member_directory.h"

#include <gtest/gtest.h>

namespace lodestar::sync {
namespace {

TEST(MemberDirectoryTest, TellsMembersFromTheGoneAndTheUnannounced) {
  MemberDirectory directory;
  EXPECT_EQ(directory.StandingOf(WorkerId(1), Incarnation(5)), Standing::kUnknown);
  directory.SetMembers(ViewId(1), {{WorkerId(1), Incarnation(5), 0}});
  EXPECT_EQ(directory.StandingOf(WorkerId(1), Incarnation(5)), Standing::kMember);
  EXPECT_EQ(directory.StandingOf(WorkerId(1), Incarnation(4)), Standing::kGone);
  EXPECT_EQ(directory.StandingOf(WorkerId(1), Incarnation(6)), Standing::kUnknown);
}

TEST(MemberDirectoryTest, LivesThatBeganWithOtherServersAreGoneBeforeAnybodyIsAnnounced) {
  MemberDirectory directory(/*last_of_others=*/Incarnation(5));
  EXPECT_EQ(directory.StandingOf(WorkerId(1), Incarnation(5)), Standing::kGone);
  EXPECT_EQ(directory.StandingOf(WorkerId(1), Incarnation(6)), Standing::kUnknown);
}

TEST(MemberDirectoryTest, DropEndsALifeBeforeTheNextViewSaysSo) {
  MemberDirectory directory;
  directory.SetMembers(ViewId(1), {{WorkerId(1), Incarnation(5), 0}});
  directory.Drop(WorkerId(1), Incarnation(5));
  EXPECT_EQ(directory.StandingOf(WorkerId(1), Incarnation(5)), Standing::kGone);
  directory.SetMembers(ViewId(2), {{WorkerId(1), Incarnation(6), 0}});
  EXPECT_EQ(directory.StandingOf(WorkerId(1), Incarnation(6)), Standing::kMember);
  directory.Drop(WorkerId(1), Incarnation(5));
  EXPECT_EQ(directory.StandingOf(WorkerId(1), Incarnation(6)), Standing::kMember);
}

TEST(MemberDirectoryTest, OlderViewsChangeNothing) {
  MemberDirectory directory;
  directory.SetMembers(ViewId(3), {{WorkerId(1), Incarnation(5), 0}});
  directory.SetMembers(ViewId(2), {});
  EXPECT_EQ(directory.StandingOf(WorkerId(1), Incarnation(5)), Standing::kMember);
}

TEST(MemberDirectoryTest, RemembersTheNewestOfTheLivesThatEnded) {
  MemberDirectory directory;
  const int count = MemberDirectory::kMaxEnded + 1;
  for (int i = 1; i <= count; ++i) directory.Drop(WorkerId(i), Incarnation(i));
  EXPECT_EQ(directory.StandingOf(WorkerId(1), Incarnation(1)), Standing::kUnknown);
  EXPECT_EQ(directory.StandingOf(WorkerId(2), Incarnation(2)), Standing::kGone);
  EXPECT_EQ(directory.StandingOf(WorkerId(count), Incarnation(count)), Standing::kGone);
}

}  // namespace
}  // namespace lodestar::sync
