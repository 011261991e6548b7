// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/alarm_book.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace lodestar::coordinator {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1000);

TEST(AlarmBookTest, CountsRepeatsAndPutsTheLatestFirst) {
  AlarmBook alarms;
  EXPECT_TRUE(alarms.Raise("a", kNow));
  EXPECT_TRUE(alarms.Raise("b", kNow));
  EXPECT_FALSE(alarms.Raise("a", kNow + absl::Seconds(2)));
  const auto snapshot = alarms.Snapshot(kNow + absl::Seconds(5));
  ASSERT_EQ(snapshot.size(), 2);
  EXPECT_EQ(snapshot[0].text, "a");
  EXPECT_EQ(snapshot[0].count, 2);
  EXPECT_EQ(snapshot[0].age, absl::Seconds(3));
}

TEST(AlarmBookTest, AReminderIsToldFromAnAlarm) {
  AlarmBook alarms;
  alarms.Raise("no lock on the door", kNow, AlarmKind::kReminder);
  alarms.Raise("fire", kNow);
  const auto snapshot = alarms.Snapshot(kNow);
  ASSERT_EQ(snapshot.size(), 2);
  EXPECT_FALSE(snapshot[0].is_reminder);
  EXPECT_TRUE(snapshot[1].is_reminder);
}

TEST(AlarmBookTest, WhatIsOverIsSaidToBeUntilItIsRaisedAgain) {
  AlarmBook alarms;
  alarms.Raise("disk a is full", kNow, AlarmKind::kAlarm, "a");
  alarms.Raise("disk b is full", kNow, AlarmKind::kAlarm, "b");
  alarms.Raise("disk c is full", kNow + absl::Seconds(2), AlarmKind::kAlarm, "c");
  alarms.End("c", /*raised_by=*/kNow + absl::Seconds(1), kNow + absl::Seconds(3));
  alarms.End("a", /*raised_by=*/kNow + absl::Seconds(1), kNow + absl::Seconds(3));
  alarms.End("a", /*raised_by=*/kNow + absl::Seconds(1), kNow + absl::Seconds(4));
  auto snapshot = alarms.Snapshot(kNow + absl::Seconds(5));
  ASSERT_EQ(snapshot.size(), 3);
  EXPECT_EQ(snapshot[0].over_age, std::nullopt) << "raised later";
  EXPECT_EQ(snapshot[1].over_age, std::nullopt) << "another subject";
  EXPECT_EQ(snapshot[2].over_age, absl::Seconds(2)) << "since the first time it was over";
  EXPECT_FALSE(alarms.Holds("a"));
  EXPECT_TRUE(alarms.Holds("b"));
  alarms.Raise("disk a is full", kNow + absl::Seconds(5), AlarmKind::kAlarm, "a");
  snapshot = alarms.Snapshot(kNow + absl::Seconds(5));
  EXPECT_EQ(snapshot[0].text, "disk a is full");
  EXPECT_EQ(snapshot[0].over_age, std::nullopt);
}

TEST(AlarmBookTest, SubjectHasOneAlarmWithTheNewestText) {
  AlarmBook alarms;
  EXPECT_TRUE(alarms.Raise("failed at 12:01", kNow, AlarmKind::kAlarm, "copies"));
  EXPECT_TRUE(alarms.Raise("failed at 12:02", kNow, AlarmKind::kAlarm, "copies"));
  EXPECT_FALSE(alarms.Raise("failed at 12:02", kNow, AlarmKind::kAlarm, "copies"));
  EXPECT_FALSE(alarms.Raise("failed at 12:02", kNow, AlarmKind::kAlarm, "other copies"))
      << "alarms of many subjects with one text are one alarm";
  EXPECT_TRUE(alarms.Raise("failed at 12:03", kNow)) << "this alarm has no subject";
  const auto snapshot = alarms.Snapshot(kNow);
  ASSERT_EQ(snapshot.size(), 2);
  EXPECT_EQ(snapshot[1].text, "failed at 12:02");
  EXPECT_EQ(snapshot[1].count, 4);
}

TEST(AlarmBookTest, AlarmsThatAreOverMakeRoomFirst) {
  AlarmBook alarms;
  for (int i = 0; i < AlarmBook::kMaxAlarms; ++i) {
    alarms.Raise(absl::StrCat("trouble of ", i), kNow, AlarmKind::kAlarm, absl::StrCat(i));
  }
  alarms.End("7", kNow, kNow);
  alarms.Raise("trouble of another", kNow, AlarmKind::kAlarm, "new");
  const auto snapshot = alarms.Snapshot(kNow);
  EXPECT_EQ(snapshot.size(), AlarmBook::kMaxAlarms) << "no alarm that holds was replaced";
  EXPECT_TRUE(alarms.Holds("0"));
  EXPECT_FALSE(snapshot.back().over_age.has_value());
}

TEST(AlarmBookTest, ReplacedAlarmsThatMayHoldAreCounted) {
  AlarmBook alarms;
  for (int i = 0; i < AlarmBook::kMaxAlarms + 3; ++i) alarms.Raise(absl::StrCat(i), kNow);
  const auto snapshot = alarms.Snapshot(kNow + absl::Seconds(2));
  EXPECT_EQ(snapshot.back().count, 3);
  EXPECT_EQ(snapshot.back().age, absl::Seconds(2));
  EXPECT_EQ(snapshot.back().over_age, std::nullopt);
}

TEST(AlarmBookTest, IsBounded) {
  AlarmBook alarms;
  for (int i = 0; i < 100; ++i) alarms.Raise(absl::StrCat(i), kNow);
  const auto snapshot = alarms.Snapshot(kNow);
  ASSERT_EQ(snapshot.size(), AlarmBook::kMaxAlarms + 1)
      << "the last one tells of the replaced ones";
  EXPECT_EQ(snapshot.front().text, "99");
}

TEST(AlarmBookTest, AlarmsDoNotPushOutReminders) {
  AlarmBook alarms;
  alarms.Raise("no lock on the door", kNow, AlarmKind::kReminder);
  for (int i = 0; i < 100; ++i) alarms.Raise(absl::StrCat(i), kNow);
  const auto snapshot = alarms.Snapshot(kNow);
  ASSERT_EQ(snapshot.size(), AlarmBook::kMaxAlarms + 1);
  EXPECT_EQ(snapshot[AlarmBook::kMaxAlarms - 1].text, "no lock on the door");
}

}  // namespace
}  // namespace lodestar::coordinator
