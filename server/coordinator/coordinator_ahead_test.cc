// SPDX-License-Identifier: Apache-2.0

// Tests of reports that come before the contributions: when does the coordinator know that all
// servers have the contribution?
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

constexpr uint64_t kServers = 1000;

Coordinator::Config TwoServers() {
  Coordinator::Config config = TestConfig();
  config.num_shards = 2;
  return config;
}

class ReportAheadTest : public testing::Test {
 protected:
  ReportAheadTest() {
    cluster_.Start();
    worker_ = cluster_.Add("worker");
    EXPECT_TRUE(cluster_.Ask(worker_).grant.has_value());
  }

  bool Awaits(Round round) { return coordinator().AwaitsContribution(worker_.life, round); }
  Coordinator& coordinator() { return cluster_.coordinator(); }

  CoordinatorHarness cluster_{TwoServers()};
  TestWorker worker_;
};

TEST_F(ReportAheadTest, AllServersHaveToHaveIt) {
  EXPECT_TRUE(Awaits(Round(0)));
  EXPECT_FALSE(coordinator().OnContributed(1, kServers, worker_.life, Round(0)));
  EXPECT_FALSE(coordinator().OnContributed(1, kServers, worker_.life, Round(0)));
  EXPECT_TRUE(Awaits(Round(0)));
  EXPECT_TRUE(coordinator().OnContributed(0, kServers, worker_.life, Round(0)));
  EXPECT_FALSE(Awaits(Round(0)));
  EXPECT_FALSE(coordinator().OnContributed(0, kServers, worker_.life, Round(0))) << "known";
}

TEST_F(ReportAheadTest, EachGrantBeginsAnew) {
  for (int64_t round = 0; round < 2; ++round) {
    EXPECT_TRUE(Awaits(Round(round)));
    for (const int shard : {0, 1}) {
      coordinator().OnContributed(shard, kServers, worker_.life, Round(round));
    }
    EXPECT_FALSE(Awaits(Round(round)));
    const messages::Grant grant = *coordinator().PollGrant(worker_.life, cluster_.now())->grant;
    const GrantAnswer next = cluster_.Ask(worker_, CoordinatorHarness::ReportOf(grant));
    ASSERT_TRUE(next.grant.has_value());
    EXPECT_EQ(next.grant->round, Round(round + 1));
  }
}

TEST_F(ReportAheadTest, NothingElseCounts) {
  for (const int shard : {0, 1}) {
    const messages::WorkerLife another_life{worker_.life.worker, Incarnation(77)};
    const messages::WorkerLife nobody{WorkerId(77), Incarnation(77)};
    EXPECT_FALSE(coordinator().OnContributed(shard, kServers - 1, worker_.life, Round(0)));
    EXPECT_FALSE(coordinator().OnContributed(shard, kServers, worker_.life, Round(1)));
    EXPECT_FALSE(coordinator().OnContributed(shard, kServers, another_life, Round(0)));
    EXPECT_FALSE(coordinator().OnContributed(shard, kServers, nobody, Round(0)));
  }
  EXPECT_TRUE(Awaits(Round(0)));
}

TEST_F(ReportAheadTest, WhatIsReportedOrOverIsNotAwaited) {
  const messages::Grant grant = *coordinator().PollGrant(worker_.life, cluster_.now())->grant;
  cluster_.Ask(worker_, CoordinatorHarness::ReportOf(grant));
  EXPECT_FALSE(Awaits(Round(0))) << "a repeat";
  EXPECT_TRUE(Awaits(Round(1)));
  cluster_.Pass(TwoServers().lease + absl::Seconds(1));
  EXPECT_FALSE(Awaits(Round(1))) << "its lease is over: it is to be told";
  EXPECT_FALSE(coordinator().OnContributed(0, kServers, worker_.life, Round(1)));
  EXPECT_FALSE(coordinator().OnContributed(1, kServers, worker_.life, Round(1)));
}

// Fixture with two servers that keep journals. The worker has reported round 0 and has the grant of
// round 1.
class ReportOfJournaledContributionTest : public ReportAheadTest {
 protected:
  ReportOfJournaledContributionTest() {
    for (const int shard : {0, 1}) Attach(shard);
    const messages::Grant grant = *coordinator().PollGrant(worker_.life, cluster_.now())->grant;
    cluster_.Ask(worker_, CoordinatorHarness::ReportOf(grant));
  }

  void Attach(int shard) {
    EXPECT_TRUE(coordinator()
                    .OnShardAttached(shard, 2, 70 + shard, kServers, absl::StrCat("host:", shard),
                                     cluster_.now(), {.first_segment = 1, .end = 5})
                    .ok());
  }
  bool AwaitsJournals(bool is_patience_over = false) {
    return coordinator().AwaitsJournals(worker_.life, Round(1), is_patience_over);
  }
};

TEST_F(ReportOfJournaledContributionTest, WaitsUntilAllServersHaveToldOfTheirJournals) {
  EXPECT_TRUE(AwaitsJournals());
  EXPECT_FALSE(coordinator().OnContributed(1, kServers, worker_.life, Round(1)));
  EXPECT_TRUE(AwaitsJournals());
  EXPECT_TRUE(coordinator().OnContributed(0, kServers, worker_.life, Round(1)));
  EXPECT_FALSE(AwaitsJournals());
}

TEST_F(ReportOfJournaledContributionTest, WaitsForNoServerThatHasAttachedSinceTheGrant) {
  Attach(1);
  EXPECT_TRUE(AwaitsJournals());
  EXPECT_TRUE(coordinator().OnContributed(0, kServers, worker_.life, Round(1)));
  EXPECT_FALSE(AwaitsJournals());
}

TEST_F(ReportOfJournaledContributionTest, WaitsBeyondPatienceOnlyForServersThatAreAway) {
  coordinator().OnContributed(0, kServers, worker_.life, Round(1));
  EXPECT_FALSE(AwaitsJournals(/*is_patience_over=*/true));
  coordinator().OnShardDisconnected(1, 71, cluster_.now());
  EXPECT_TRUE(AwaitsJournals(/*is_patience_over=*/true));
}

TEST_F(ReportOfJournaledContributionTest, DoesNotWaitForAnotherRound) {
  EXPECT_FALSE(coordinator().AwaitsJournals(worker_.life, Round(0), /*is_patience_over=*/false));
}

TEST_F(ReportAheadTest, ReportDoesNotWaitWhereNoJournalsAreKept) {
  EXPECT_FALSE(coordinator().AwaitsJournals(worker_.life, Round(0), /*is_patience_over=*/false));
}

}  // namespace
}  // namespace lodestar::coordinator
