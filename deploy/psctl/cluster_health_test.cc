// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/cluster_health.h"

#include <gtest/gtest.h>

namespace lodestar::psctl {
namespace {

v1::ClusterStatus InState(const std::string& state, const std::string& worker_state = "member") {
  v1::ClusterStatus status;
  status.set_state(state);
  status.add_workers()->set_state(worker_state);
  return status;
}

TEST(ClusterHealthTest, FollowsTheStateOfTheJob) {
  for (const char* state :
       {"training", "evaluating", "waiting_for_upstream", "saving", "stopping", "done"}) {
    EXPECT_EQ(HealthOf(InState(state)), ClusterHealth::kGood) << state;
  }
  for (const char* state : {"waiting_for_workers", "waiting_for_servers", "waiting_for_journal",
                            "loading", "paused", ""}) {
    EXPECT_EQ(HealthOf(InState(state)), ClusterHealth::kStandsStill) << state;
  }
  EXPECT_EQ(HealthOf(InState("evaluating", "expired")), ClusterHealth::kStandsStill);
  EXPECT_EQ(HealthOf(InState("done", "left")), ClusterHealth::kGood);
  v1::ClusterStatus held_up = InState("training");
  held_up.mutable_open_round()->set_is_held_up(true);
  EXPECT_EQ(HealthOf(held_up), ClusterHealth::kStandsStill);
  EXPECT_EQ(HealthOf(InState("failed")), ClusterHealth::kNeedsOperator);
  EXPECT_EQ(HealthOf(InState("diverged")), ClusterHealth::kNeedsOperator);
}

TEST(ClusterHealthTest, AnAlarmCountsForTenMinutesAndAReminderNever) {
  v1::ClusterStatus status = InState("training");
  v1::Alarm* alarm = status.add_alarms();
  alarm->set_age_seconds(599);
  EXPECT_EQ(HealthOf(status), ClusterHealth::kNeedsOperator);
  alarm->set_age_seconds(601);
  EXPECT_EQ(HealthOf(status), ClusterHealth::kGood);
  alarm->set_age_seconds(0);
  alarm->set_is_reminder(true);
  EXPECT_EQ(HealthOf(status), ClusterHealth::kGood);
}

}  // namespace
}  // namespace lodestar::psctl
