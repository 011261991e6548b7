// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/testing/status_matchers.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

using ::testing::HasSubstr;

// Fixture for the case that the connection of worker b is closed while others wait for b.
class UnconnectedWorkerTest : public testing::Test {
 protected:
  explicit UnconnectedWorkerTest(const Coordinator::Config& config = Config()) : cluster_(config) {}
  static Coordinator::Config Config() {
    Coordinator::Config config = TestConfig(3);
    config.job.schedule.total_rounds = 1000;
    config.ends_unconnected = true;
    return config;
  }
  void SetUp() override {
    cluster_.Start();
    for (const char* name : {"a", "b", "c"}) workers_.push_back(cluster_.Add(name));
    OpenRound();
  }

  TestWorker& Find(char name) { return workers_[name - 'a']; }
  void OpenRound() {
    for (const TestWorker& worker : workers_) cluster_.Ask(worker);
  }
  void Report(const std::string& names) {
    for (char name : names) {
      const GrantAnswer held = cluster_.Ask(Find(name));
      ASSERT_TRUE(held.grant.has_value()) << name << ": " << held.pending_reason;
      cluster_.Ask(Find(name), CoordinatorHarness::ReportOf(*held.grant));
    }
  }
  std::string Alive() {
    std::string names;
    for (const WorkerSnapshot& worker : cluster_.coordinator().Snapshot(cluster_.now()).workers) {
      if (worker.state == "member" || worker.state == "registered") names += worker.name;
    }
    return names;
  }
  void Close(char name, bool by_peer = true) {
    cluster_.coordinator().OnConnectionEnded(Find(name).life, kPeer, by_peer, cluster_.now());
  }
  // Lets `duration` pass, without heartbeats. `duration` must be shorter than a lease.
  void Wait(absl::Duration duration) {
    cluster_.sent().commands.clear();
    cluster_.Pass(duration);
  }
  int num_asked() {
    const std::vector<std::string>& commands = cluster_.sent().commands;
    return static_cast<int>(std::count_if(commands.begin(), commands.end(), [](const auto& text) {
      return absl::StartsWith(text, "ask connections ");
    }));
  }
  void Answer(char name, bool are_closed = true) {
    for (int shard : {0, 1}) {
      cluster_.coordinator().OnShardEvent(
          shard, shards::ShardConnections{Find(name).life, are_closed}, cluster_.now());
    }
  }

  static constexpr char kPeer[] = "ipv4:10.0.0.1:4242";
  CoordinatorHarness cluster_;
  std::vector<TestWorker> workers_;
};

TEST_F(UnconnectedWorkerTest, EndsOnceNothingCameOverAnotherConnection) {
  Report("ac");
  Close('b');
  Wait(absl::Milliseconds(900));
  EXPECT_EQ(num_asked(), 0);
  Wait(absl::Milliseconds(100));
  EXPECT_EQ(num_asked(), 1);
  EXPECT_EQ(Alive(), "abc");
  Answer('b');
  EXPECT_EQ(Alive(), "ac");
  EXPECT_THAT(cluster_.coordinator().Heartbeat({Find('b').life, 0, 0, "compute"}, cluster_.now()),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("connections")));
  Report("ac");
}

TEST_F(UnconnectedWorkerTest, LivesOnIfItIsHeardOverAnotherConnection) {
  Report("ac");
  Close('b');
  cluster_.coordinator().NoteConnection(Find('b').life,
                                        kPeer);  // a late call over the closed connection
  Wait(absl::Seconds(1));
  ASSERT_EQ(num_asked(), 1);
  cluster_.coordinator().NoteConnection(Find('b').life, "ipv4:10.0.0.1:4243");
  Answer('b');
  EXPECT_EQ(Alive(), "abc");
  Close('b');
  ASSERT_OK(cluster_.Register(Find('b')));  // the address of the connection is not known
  Wait(absl::Seconds(1));
  EXPECT_EQ(num_asked(), 0) << "a registration is a sign of life, too";
}

TEST_F(UnconnectedWorkerTest, LivesOnIfAServerHasAnOpenConnection) {
  Report("ac");
  Close('b');
  Wait(absl::Seconds(1));
  Answer('b', /*are_closed=*/false);
  Wait(absl::Seconds(1));
  EXPECT_EQ(Alive(), "abc");
}

TEST_F(UnconnectedWorkerTest, LivesOnWhileTheRoundWaitsForAnotherWorker) {
  // c computes. If c pushed, it could be waiting for b, whose part is summed first.
  ASSERT_OK(
      cluster_.coordinator().Heartbeat({Find('c').life, 0, 0, "compute"}, cluster_.now()).status());
  Report("a");
  Close('b');
  Wait(absl::Seconds(3));
  EXPECT_EQ(num_asked(), 0) << "c has not reported either";
  Report("c");
  Wait(absl::Milliseconds(50));
  EXPECT_EQ(num_asked(), 1);
}

TEST_F(UnconnectedWorkerTest, LivesOnIfItsRoundIsDone) {
  Report("bc");
  Close('b');
  Wait(absl::Seconds(2));
  EXPECT_EQ(num_asked(), 0) << "nobody waits for b";
}

TEST_F(UnconnectedWorkerTest, LivesOnIfAnotherWorkersConnectionWasClosed) {
  Report("ac");
  Close('a');
  Close('b');
  cluster_.coordinator().NoteConnection(Find('a').life, "ipv4:10.0.0.1:4243");
  Wait(absl::Seconds(2));
  EXPECT_EQ(num_asked(), 0);
}

TEST_F(UnconnectedWorkerTest, LivesOnIfATimeoutHasEndedTheConnection) {
  Report("ac");
  Close('b', /*by_peer=*/false);
  Wait(absl::Seconds(2));
  EXPECT_EQ(num_asked(), 0);
}

TEST_F(UnconnectedWorkerTest, GetsTheTimeInWhichTheCoordinatorDidNotRun) {
  Report("ac");
  Close('b');
  Wait(absl::Milliseconds(900));
  cluster_.coordinator().OnGap(absl::Seconds(1), cluster_.now());
  Wait(absl::Milliseconds(900));
  EXPECT_EQ(num_asked(), 0);
  Wait(absl::Milliseconds(100));
  EXPECT_EQ(num_asked(), 1);
}

TEST_F(UnconnectedWorkerTest, HasFourRoundTrips) {
  messages::HeartbeatCall call = {Find('b').life, 0, 0, "compute"};
  call.path.round_trip = absl::Milliseconds(400);
  ASSERT_OK(cluster_.coordinator().Heartbeat(call, cluster_.now()));
  Report("ac");
  Close('b');
  Wait(absl::Milliseconds(1500));
  EXPECT_EQ(num_asked(), 0);
  Wait(absl::Milliseconds(100));
  EXPECT_EQ(num_asked(), 1);
}

TEST_F(UnconnectedWorkerTest, KeepsItsLeaseIfItIsTheLastMember) {
  for (char name : {'a', 'c'}) {
    ASSERT_OK(cluster_.coordinator().Leave(Find(name).life, "test", {}, cluster_.now()));
  }
  Close('b');
  Wait(absl::Seconds(2));
  EXPECT_EQ(num_asked(), 0);
}

class WorkerWithLeaseAloneTest : public UnconnectedWorkerTest {
 protected:
  WorkerWithLeaseAloneTest() : UnconnectedWorkerTest(Config()) {}
  static Coordinator::Config Config() {
    Coordinator::Config config = UnconnectedWorkerTest::Config();
    config.ends_unconnected = false;
    return config;
  }
};

TEST_F(WorkerWithLeaseAloneTest, LivesOnUntilItsLeaseEnds) {
  Report("ac");
  Close('b');
  Wait(absl::Seconds(2));
  EXPECT_EQ(num_asked(), 0);
  Answer('b');
  EXPECT_EQ(Alive(), "abc");
}

class UnconnectedWorkerWithLocalStepsTest : public UnconnectedWorkerTest {
 protected:
  UnconnectedWorkerWithLocalStepsTest() : UnconnectedWorkerTest(Config()) {}
  static Coordinator::Config Config() {
    Coordinator::Config config = UnconnectedWorkerTest::Config();
    config.job.mode = job::Mode::kLocalSgd;
    config.job.local_steps = 2;
    config.job.global_batch_size = 0;
    config.job.batch_size = 1;
    return config;
  }
};

TEST_F(UnconnectedWorkerWithLocalStepsTest, HasATwentiethOfAUsualRound) {
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) cluster_.Pass(absl::Seconds(5), workers_);
    Report("abc");
    OpenRound();
  }
  Report("ac");
  Close('b');
  Wait(absl::Milliseconds(1900));
  EXPECT_EQ(num_asked(), 0) << "of 40 s";
  Wait(absl::Milliseconds(300));
  EXPECT_EQ(num_asked(), 1);
}

}  // namespace
}  // namespace lodestar::coordinator
