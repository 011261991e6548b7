// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/outbox.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/coordinator/alarm_book.h"

namespace lodestar::coordinator {
namespace {

TEST(OutboxTest, AlarmOfASubjectIsOverOnceThereIsNoError) {
  AlarmBook alarms;
  Outbox outbox(&alarms);
  const absl::Time start = absl::UnixEpoch() + absl::Hours(1);
  outbox.SetAlarm("copies", absl::AbortedError("exit code 3"), start);
  outbox.SetAlarm("copies", absl::AbortedError("exit code 3"), start + absl::Seconds(1));
  EXPECT_EQ(outbox.Take().size(), 1) << "the same alarm is announced once";
  std::vector<AlarmSnapshot> seen = alarms.Snapshot(start + absl::Seconds(2));
  ASSERT_EQ(seen.size(), 1);
  EXPECT_EQ(seen[0].text, "exit code 3");
  EXPECT_EQ(seen[0].count, 2);
  EXPECT_FALSE(seen[0].over_age.has_value());
  const uint64_t version = outbox.state_version();
  outbox.SetAlarm("copies", absl::OkStatus(), start + absl::Seconds(3));
  EXPECT_GT(outbox.state_version(), version);
  seen = alarms.Snapshot(start + absl::Seconds(5));
  ASSERT_EQ(seen.size(), 1);
  EXPECT_EQ(seen[0].over_age, absl::Seconds(2));
}

TEST(OutboxTest, NewTextsOfAnAlarmThatHoldsAreNotAnnounced) {
  AlarmBook alarms;
  Outbox outbox(&alarms);
  const absl::Time start = absl::UnixEpoch() + absl::Hours(1);
  outbox.SetAlarm("copies", absl::AbortedError("failed at 12:01"), start);
  outbox.SetAlarm("copies", absl::AbortedError("failed at 12:02"), start);
  EXPECT_EQ(outbox.Take().size(), 1);
  ASSERT_EQ(alarms.Snapshot(start).size(), 1);
  EXPECT_EQ(alarms.Snapshot(start)[0].text, "failed at 12:02");
  outbox.SetAlarm("copies", absl::OkStatus(), start);
  outbox.SetAlarm("copies", absl::AbortedError("failed at 12:03"), start);
  EXPECT_EQ(outbox.Take().size(), 1) << "the alarm was over meanwhile";
}

}  // namespace
}  // namespace lodestar::coordinator
