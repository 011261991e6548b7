// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/membership/closed_connections.h"

#include <gtest/gtest.h>

namespace lodestar::membership {
namespace {

using Verdict = ClosedConnections::Verdict;

constexpr absl::Duration kPatience = absl::Seconds(1);
constexpr messages::WorkerLife kLife = {WorkerId(1), Incarnation(7)};
constexpr messages::WorkerLife kOther = {WorkerId(2), Incarnation(8)};
constexpr char kPeer[] = "ipv4:10.0.0.1:4242";
constexpr char kNewPeer[] = "ipv4:10.0.0.1:4243";

class ClosedConnectionsTest : public ::testing::Test {
 protected:
  void End(const messages::WorkerLife& life, bool by_peer = true) {
    closed_.OnEnded(life, kPeer, by_peer, now_);
  }
  Verdict Judge(const messages::WorkerLife& life = kLife, absl::Duration patience = kPatience) {
    return closed_.Judge(life, patience, now_);
  }
  void Pass(absl::Duration duration) { now_ += duration; }
  void Answer(bool are_closed = true) {
    for (int shard : {0, 1}) closed_.OnAnswer(shard, kLife, are_closed);
  }

  ClosedConnections closed_{{.num_shards = 2, .lease = absl::Seconds(10)}};
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
};

TEST_F(ClosedConnectionsTest, EndsIncarnationAfterPatienceOnceAllServersAgree) {
  EXPECT_EQ(Judge(), Verdict::kWait) << "nothing has ended";
  End(kLife);
  Pass(kPatience - absl::Milliseconds(1));
  EXPECT_EQ(Judge(), Verdict::kWait);
  Pass(absl::Milliseconds(1));
  EXPECT_EQ(Judge(), Verdict::kAsk);
  EXPECT_EQ(Judge(), Verdict::kWait) << "asked once";
  closed_.OnAnswer(1, kLife, /*are_closed=*/true);
  closed_.OnAnswer(1, kLife, /*are_closed=*/true);
  EXPECT_EQ(Judge(), Verdict::kWait) << "shard 0 has not answered";
  closed_.OnAnswer(0, kLife, /*are_closed=*/true);
  EXPECT_EQ(Judge(), Verdict::kEnd);
  EXPECT_EQ(closed_.ClosedFor(kLife, now_), kPatience);
}

TEST_F(ClosedConnectionsTest, WaitsIfOneServerHasAnOpenConnection) {
  End(kLife);
  Pass(kPatience);
  ASSERT_EQ(Judge(), Verdict::kAsk);
  closed_.OnAnswer(0, kLife, /*are_closed=*/true);
  closed_.OnAnswer(1, kLife, /*are_closed=*/false);
  EXPECT_EQ(Judge(), Verdict::kWait);
  closed_.OnAnswer(1, kLife, /*are_closed=*/true);
  EXPECT_EQ(Judge(), Verdict::kWait) << "late answers change nothing";
}

TEST_F(ClosedConnectionsTest, IgnoresAnswersThatNobodyAskedFor) {
  End(kLife);
  Answer();
  Pass(kPatience);
  EXPECT_EQ(Judge(), Verdict::kAsk);
  EXPECT_EQ(Judge(), Verdict::kWait);
  for (int shard : {0, 1}) {
    closed_.OnAnswer(shard, {kLife.worker, Incarnation(6)}, /*are_closed=*/true);
  }
  EXPECT_EQ(Judge(), Verdict::kWait);
}

TEST_F(ClosedConnectionsTest, WaitsIfTheOtherEndHasNotClosedTheConnection) {
  End(kLife, /*by_peer=*/false);
  Pass(kPatience);
  EXPECT_EQ(Judge(), Verdict::kWait);
}

TEST_F(ClosedConnectionsTest, WaitsOnceTheIncarnationIsHeardOverAnotherConnection) {
  End(kLife);
  closed_.OnHeard(kLife, kPeer);
  Pass(kPatience);
  EXPECT_EQ(Judge(), Verdict::kAsk) << "that call was on its way when the connection ended";
  Answer();
  closed_.OnHeard(kLife, kNewPeer);
  EXPECT_EQ(Judge(), Verdict::kWait);
}

TEST_F(ClosedConnectionsTest, WaitsIfAnotherWorkersConnectionEndsBeforeOrAfter) {
  for (const bool by_peer : {true, false}) {
    End(kOther, by_peer);
    Pass(kPatience);
    End(kLife);
    Pass(kPatience);
    EXPECT_EQ(Judge(), Verdict::kWait) << "the other one ended before";
    Pass(absl::Seconds(20));
    End(kLife);
    Pass(kPatience);
    End(kOther, by_peer);
    closed_.OnHeard(kOther, kNewPeer);
    EXPECT_EQ(Judge(), Verdict::kWait) << "and after, whatever became of it";
    Pass(absl::Seconds(20));
  }
  End(kOther);
  Pass(kPatience + absl::Milliseconds(1));
  End(kLife);
  Pass(kPatience);
  EXPECT_EQ(Judge(), Verdict::kAsk) << "the other one ended long before";
}

TEST_F(ClosedConnectionsTest, JudgesTheAwaitedIncarnationAlone) {
  End({kLife.worker, Incarnation(6)});
  Pass(kPatience);
  EXPECT_EQ(Judge(), Verdict::kWait) << "a life before";
  EXPECT_EQ(Judge(kOther), Verdict::kWait);
}

TEST_F(ClosedConnectionsTest, BeginsAnewAfterTimeInWhichTheCoordinatorDidNotRun) {
  End(kLife);
  Pass(kPatience);
  ASSERT_EQ(Judge(), Verdict::kAsk);
  Answer();
  closed_.OnGap(now_);
  EXPECT_EQ(Judge(), Verdict::kWait);
  Pass(kPatience);
  EXPECT_EQ(Judge(), Verdict::kAsk);
}

TEST_F(ClosedConnectionsTest, LeavesToTheLeaseWhatLastsLonger) {
  End(kLife);
  EXPECT_FALSE(closed_.is_empty());
  Pass(absl::Seconds(10) + absl::Milliseconds(1));
  EXPECT_EQ(Judge(), Verdict::kWait);
  EXPECT_TRUE(closed_.is_empty());
}

}  // namespace
}  // namespace lodestar::membership
