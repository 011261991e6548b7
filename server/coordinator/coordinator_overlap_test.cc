// SPDX-License-Identifier: Apache-2.0

// Tests of overlapped rounds. Each round takes the samples that workers have computed on the grant
// before it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

using ::testing::HasSubstr;

// Returns the config of a job in which the window of each fragment has two steps. A step has 3
// samples.
Coordinator::Config OverlapConfig(int min_workers = 1, int fragments = 1) {
  Coordinator::Config config = TestConfig(min_workers);
  job::JobSpec& job = config.job;
  job.mode = job::Mode::kLocalSgd;
  job.local_steps = 2 * fragments;
  job.fragments = fragments;
  job.overlap_steps = 1;
  job.global_batch_size = 0;
  job.batch_size = 3;
  job.schedule.total_rounds = 6;
  job.bucket_bytes = 1024;
  return config;
}

constexpr int64_t kWindow = 6;  // samples per window

// Returns the report of a worker that has computed `computed` samples before this grant.
messages::RoundReport ReportOf(const messages::Grant& grant, int64_t computed) {
  messages::RoundReport report;
  report.round = grant.round;
  report.num_samples = computed;
  report.num_predictions = computed;
  report.loss_sum = 2.0 * static_cast<double>(computed);
  report.leaves_nothing_in_hand = grant.num_samples == 0;
  return report;
}

TEST(CoordinatorOverlapTest, ARoundTakesWhatTheGrantBeforeHasGivenToCompute) {
  CoordinatorHarness cluster(OverlapConfig());
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  int64_t computed = 0;
  int64_t counted = 0;
  std::optional<messages::RoundReport> report;
  for (int round = 0; round < 6; ++round) {
    const messages::Grant grant = *cluster.Ask(a, report).grant;
    EXPECT_EQ(cluster.sent().plans.back().roster[0].num_samples, computed);
    EXPECT_EQ(grant.round_samples, computed);
    EXPECT_EQ(grant.num_samples, round < 5 ? kWindow : 0);
    report = ReportOf(grant, computed);
    counted += computed;
    computed = grant.num_samples;
  }
  cluster.Ask(a, report);
  EXPECT_EQ(counted, 5 * kWindow);
  EXPECT_EQ(cluster.observer().rounds.back().total_samples, counted);
}

TEST(CoordinatorOverlapTest, WhatIsInHandIsUnderWayUntilARoundTakesLess) {
  CoordinatorHarness cluster(OverlapConfig());
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const auto untrained = [&] {
    return cluster.coordinator().Snapshot(cluster.now()).untrained_samples;
  };
  const messages::Grant first = *cluster.Ask(a).grant;
  EXPECT_EQ(untrained(), 0);
  const messages::Grant second = *cluster.Ask(a, ReportOf(first, 0)).grant;
  EXPECT_EQ(untrained(), 0) << "a window is in hand, and another one is granted";
  // The worker must stop while it computes on the first grant. It computes nothing on the second
  // grant.
  messages::RoundReport last = ReportOf(second, 2);
  last.leaves_nothing_in_hand = true;
  ASSERT_OK(cluster.coordinator().Leave(a.life, "told to stop", last, cluster.now()));
  EXPECT_EQ(untrained(), kWindow - 2 + kWindow);
}

TEST(CoordinatorOverlapTest, WithFragmentsItStandsForTheWindowsOfACycle) {
  CoordinatorHarness cluster(OverlapConfig(/*min_workers=*/1, /*fragments=*/2));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  std::optional<messages::RoundReport> report;
  for (const int64_t windows : {0, 1, 2, 2}) {
    const messages::Grant grant = *cluster.Ask(a, report).grant;
    EXPECT_EQ(cluster.sent().plans.back().roster[0].num_samples, windows * kWindow);
    report = ReportOf(grant, windows == 0 ? 0 : kWindow);
  }
}

TEST(CoordinatorOverlapTest, MoreThanWasGrantedBeforeIsRefused) {
  CoordinatorHarness cluster(OverlapConfig());
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const messages::Grant first = *cluster.Ask(a).grant;
  EXPECT_THAT(cluster.coordinator().RequestGrant(a.life, ReportOf(first, 1), cluster.now()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 0 samples")));
  const messages::Grant second = *cluster.Ask(a, ReportOf(first, 0)).grant;
  EXPECT_THAT(
      cluster.coordinator().RequestGrant(a.life, ReportOf(second, kWindow + 1), cluster.now()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 6 samples")));
}

TEST(CoordinatorOverlapTest, AStopTakesWhatIsInHandAndGivesNothingMore) {
  CoordinatorHarness cluster(OverlapConfig());
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const messages::Grant first = *cluster.Ask(a).grant;
  const messages::Grant second = *cluster.Ask(a, ReportOf(first, 0)).grant;
  cluster.coordinator().RequestStop("enough", cluster.now());
  const messages::Grant last = *cluster.Ask(a, ReportOf(second, kWindow)).grant;
  EXPECT_EQ(last.kind, messages::Grant::Kind::kTrain);
  EXPECT_EQ(last.num_samples, 0);
  EXPECT_EQ(last.local_steps, 0);
  cluster.Ask(a, ReportOf(last, kWindow));
  EXPECT_NE(cluster.coordinator().phase(), CoordinatorPhase::kRunning);
  EXPECT_EQ(cluster.observer().rounds.back().total_samples, 2 * kWindow);
}

TEST(CoordinatorOverlapTest, AStopDoesNotWaitForWhoNeverComesWithWhatIsInHand) {
  Coordinator::Config config = OverlapConfig(/*min_workers=*/2);
  config.job.keep_workers = 1;
  config.stop_timeout = absl::Seconds(40);
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  for (const TestWorker& worker : {a, b}) cluster.Ask(worker);
  for (const TestWorker& worker : {a, b}) {
    cluster.Ask(worker, ReportOf(*cluster.Ask(worker).grant, 0));
  }
  cluster.coordinator().RequestStop("enough", cluster.now());
  cluster.Ask(a, ReportOf(*cluster.Ask(a).grant, kWindow));
  for (int i = 0; i < 13; ++i) cluster.Pass(absl::Seconds(3), {a, b});
  EXPECT_FALSE(cluster.Ask(a).grant.has_value());
  cluster.Pass(absl::Seconds(3), {a});
  const messages::Grant last = *cluster.Ask(a).grant;
  EXPECT_EQ(last.num_samples, 0);
  cluster.Ask(a, ReportOf(last, kWindow));
  EXPECT_NE(cluster.coordinator().phase(), CoordinatorPhase::kRunning);
}

TEST(CoordinatorOverlapTest, AStopDoesNotWaitForWhoHasNothingInHandAndNeverAsks) {
  Coordinator::Config config = OverlapConfig(/*min_workers=*/2);
  config.job.keep_workers = 2;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  TestWorker b = cluster.Add("b");
  for (const TestWorker& worker : {a, b}) cluster.Ask(worker);
  for (const TestWorker& worker : {b, a}) {
    cluster.Ask(worker, ReportOf(*cluster.Ask(worker).grant, 0));
  }
  const messages::Grant second = *cluster.Ask(a).grant;
  // b is lost and comes back. The job needs two workers for a round.
  for (int i = 0; i < 30; ++i) cluster.Pass(absl::Seconds(3), {a});
  ASSERT_OK(cluster.Register(b));
  ASSERT_OK(cluster.Join(b));
  EXPECT_FALSE(cluster.Ask(a, ReportOf(second, kWindow)).grant.has_value());
  cluster.coordinator().RequestStop("enough", cluster.now());
  EXPECT_NE(cluster.coordinator().phase(), CoordinatorPhase::kRunning);
}

TEST(CoordinatorOverlapTest, WhoLeavesIsInOneMoreRoundForWhatItHasInHand) {
  CoordinatorHarness cluster(OverlapConfig(/*min_workers=*/1));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  const messages::Grant of_a = *cluster.Ask(a).grant;
  EXPECT_FALSE(cluster.Ask(b).grant.has_value());
  const messages::Grant second_of_a = *cluster.Ask(a, ReportOf(of_a, 0)).grant;
  const messages::Grant of_b = *cluster.Ask(b).grant;
  // b computes on its grant and is told to leave. a has not finished its round.
  EXPECT_FALSE(cluster.Ask(b, ReportOf(of_b, 0)).grant.has_value());
  ASSERT_OK(cluster.coordinator().BeginLeave(b.life, cluster.now()));
  EXPECT_FALSE(cluster.Ask(b).grant.has_value());
  cluster.Ask(a, ReportOf(second_of_a, kWindow));
  const messages::Grant last = *cluster.Ask(b).grant;
  EXPECT_EQ(last.kind, messages::Grant::Kind::kTrain);
  messages::RoundReport report = ReportOf(last, kWindow);
  report.leaves_nothing_in_hand = true;
  EXPECT_EQ(cluster.Ask(b, report).grant->kind, messages::Grant::Kind::kDone);
}

TEST(CoordinatorOverlapTest, WhoHasNothingInHandLeavesAtOnce) {
  CoordinatorHarness cluster(OverlapConfig(/*min_workers=*/1));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const messages::Grant grant = *cluster.Ask(a).grant;
  ASSERT_OK(cluster.coordinator().BeginLeave(a.life, cluster.now()));
  messages::RoundReport report = ReportOf(grant, 0);
  report.leaves_nothing_in_hand = true;
  EXPECT_EQ(cluster.Ask(a, report).grant->kind, messages::Grant::Kind::kDone);
}

TEST(CoordinatorOverlapTest, ANewLifeHasNothingInHand) {
  CoordinatorHarness cluster(OverlapConfig());
  cluster.Start();
  TestWorker a = cluster.Add("a");
  const messages::Grant first = *cluster.Ask(a).grant;
  cluster.Ask(a, ReportOf(first, 0));
  cluster.Pass(absl::Minutes(1));
  ASSERT_OK(cluster.Register(a));
  ASSERT_OK(cluster.Join(a));
  cluster.Ask(a);
  EXPECT_EQ(cluster.sent().plans.back().roster[0].num_samples, 0);
}

TEST(CoordinatorOverlapTest, WhatIsInHandOutlivesTheCoordinatorsProcess) {
  CoordinatorHarness cluster(OverlapConfig());
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const messages::Grant first = *cluster.Ask(a).grant;
  const messages::Grant second = *cluster.Ask(a, ReportOf(first, 0)).grant;
  cluster.Restart();
  cluster.AttachAgain();
  EXPECT_EQ(*cluster.Ask(a).grant, second);
  cluster.Ask(a, ReportOf(second, kWindow));
  EXPECT_EQ(cluster.sent().plans.back().roster[0].num_samples, kWindow);
}

TEST(CoordinatorOverlapTest, MoreFragmentsThanBucketsAreRefused) {
  Coordinator::Config config = OverlapConfig(1, /*fragments=*/64);
  config.job.bucket_bytes = params::kDefaultBucketBytes;
  EXPECT_THAT(Coordinator::Create(config, absl::UnixEpoch()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--fragments=64")));
}

}  // namespace
}  // namespace lodestar::coordinator
