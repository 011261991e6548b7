// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/cluster_watch.h"

#include <deque>
#include <string>
#include <vector>

#include "common/testing/simulated_clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::psctl {
namespace {

using ::testing::ElementsAre;

const absl::Status kAway = absl::UnavailableError("connection refused");

// A connection: the states that the server sends over it, and how it ends.
struct Stream {
  std::vector<std::string> states;
  absl::Status end;
};

// Watches `streams`, one after the other, and ends the watch at the state "enough".
class Watched {
 public:
  explicit Watched(std::deque<Stream> streams) : streams_(std::move(streams)) {
    watch_.stream = [this](const ClusterWatch::Show& show) {
      const Stream stream = streams_.front();
      streams_.pop_front();
      for (const std::string& state : stream.states) {
        v1::ClusterStatus status;
        status.set_state(state);
        if (!show(status)) return absl::OkStatus();
      }
      return stream.end;
    };
    watch_.show = [this](const v1::ClusterStatus& status) {
      seen.push_back(status.state());
      return status.state() != "enough";
    };
    watch_.away = [this](absl::string_view, absl::Duration away) {
      outages.push_back(away);
      return static_cast<int>(outages.size()) != gives_up_after_;
    };
    watch_.clock = &clock_;
  }
  absl::Status Run() { return WatchAcrossRestarts(watch_); }

  std::vector<std::string> seen;
  std::vector<absl::Duration> outages;
  int gives_up_after_ = 0;  // Number of outages after which the watch gives up. 0 means never.

 private:
  SimulatedClock clock_{SimulatedClock::OnSleep::kAdvance};
  std::deque<Stream> streams_;
  ClusterWatch watch_;
};

TEST(ClusterWatchTest, WhoeverLooksCanEndItWhileNobodyAnswers) {
  Watched watched({{{"training"}, kAway}, {{}, kAway}, {{"training"}, kAway}});
  watched.gives_up_after_ = 2;
  EXPECT_OK(watched.Run());
  EXPECT_THAT(watched.seen, ElementsAre("training"));
}

TEST(ClusterWatchTest, GoesOnBehindARestartOfTheServer) {
  Watched watched({{{"training"}, kAway}, {{}, kAway}, {{"restoring", "enough"}, kAway}});
  EXPECT_OK(watched.Run());
  EXPECT_THAT(watched.seen, ElementsAre("training", "restoring", "enough"));
  EXPECT_THAT(watched.outages, ElementsAre(absl::ZeroDuration(), absl::Seconds(1)));
}

TEST(ClusterWatchTest, GoesOnBehindWhatPasses) {
  for (const absl::Status& passes :
       {absl::DeadlineExceededError("late"), absl::ResourceExhaustedError("busy"),
        absl::CancelledError("of its last moments")}) {
    Watched watched({{{"training"}, passes}, {{"enough"}, kAway}});
    EXPECT_OK(watched.Run()) << passes;
  }
}

TEST(ClusterWatchTest, EndsWithTheJob) {
  Watched watched({{{"training", "done"}, kAway}});
  EXPECT_OK(watched.Run());
  EXPECT_THAT(watched.outages, ElementsAre());
}

TEST(ClusterWatchTest, AServerThatWasNeverThereIsAnError) {
  Watched watched({{{}, kAway}});
  EXPECT_EQ(watched.Run(), kAway);
}

TEST(ClusterWatchTest, ARefusalIsFinal) {
  const absl::Status refused = absl::PermissionDeniedError("no");
  Watched watched({{{"training"}, refused}});
  EXPECT_EQ(watched.Run(), refused);
}

TEST(ClusterWatchTest, WhoIsTurnedAwayTwiceIsNotLetIn) {
  const absl::Status revoked = absl::UnauthenticatedError("was revoked");
  Watched watched({{{"training"}, revoked}, {{}, revoked}});
  EXPECT_EQ(watched.Run(), revoked);
  Watched damaged({{{"training"}, revoked}, {{"training"}, revoked}, {{"enough"}, kAway}});
  EXPECT_OK(damaged.Run());
}

}  // namespace
}  // namespace lodestar::psctl
