// SPDX-License-Identifier: Apache-2.0

#include "server/host/checkpoint_command.h"

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/queue_executor.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::host {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CheckpointCommandTest : public testing::Test {
 protected:
  CheckpointCommandTest() : command_(MakeDeps()) {}

  CheckpointCommand::Deps MakeDeps() {
    CheckpointCommand::Deps deps;
    deps.clock = &clock_;
    deps.executor = &executor_;
    deps.run = [this](const std::string& folder, const std::vector<std::string>& set_aside,
                      const std::function<bool()>& must_end) {
      runs_.push_back(folder);
      set_aside_ = set_aside;
      during_run_();
      return must_end() ? absl::CancelledError("was ended") : std::exchange(result_, {});
    };
    deps.exists = [this](const std::string& folder) { return removed_.count(folder) == 0; };
    deps.on_outcome = [this](const absl::Status& outcome) { outcomes_.push_back(outcome); };
    return deps;
  }
  void Add(const std::string& folder) { command_.Add(folder, std::vector<std::string>()); }

  SimulatedClock clock_{SimulatedClock::OnSleep::kAdvance};
  QueueExecutor executor_;
  absl::Status result_;
  std::function<void()> during_run_ = [] {};
  std::set<std::string> removed_;
  std::vector<std::string> runs_;
  std::vector<std::string> set_aside_;  // the names of the last run
  std::vector<absl::Status> outcomes_;
  CheckpointCommand command_;
};

TEST_F(CheckpointCommandTest, RunsWithEachCheckpointInOrderOnTheExecutor) {
  Add("a");
  Add("b");
  EXPECT_THAT(runs_, IsEmpty());
  executor_.RunAll();
  EXPECT_THAT(runs_, ElementsAre("a", "b"));
  EXPECT_THAT(outcomes_, ElementsAre(IsOk(), IsOk()));
  EXPECT_OK(command_.Finish(absl::ZeroDuration(), [] { return false; }));
}

TEST_F(CheckpointCommandTest, GetsTheNamesThatWereSetAside) {
  command_.Add("a", std::vector<std::string>{"c", "b"});
  executor_.RunAll();
  EXPECT_THAT(set_aside_, ElementsAre("c", "b"));
}

TEST_F(CheckpointCommandTest, DoesNotRunIfTheNamesAreNotKnown) {
  command_.Add("a", absl::PermissionDeniedError("cannot list directory"));
  executor_.RunAll();
  EXPECT_THAT(runs_, IsEmpty());
  EXPECT_THAT(outcomes_, ElementsAre(StatusIs(absl::StatusCode::kPermissionDenied)));
}

TEST_F(CheckpointCommandTest, FailureNamesReasonUntilOneWorks) {
  result_ = absl::AbortedError("ended with exit code 3");
  Add("a");
  executor_.RunAll();
  EXPECT_THAT(outcomes_.back(), StatusIs(absl::StatusCode::kAborted, HasSubstr("exit code 3")));
  EXPECT_THAT(
      command_.Finish(absl::ZeroDuration(), [] { return false; }),
      StatusIs(absl::StatusCode::kAborted, AllOf(HasSubstr("for a: "), HasSubstr("exit code 3"))));
  Add("b");
  executor_.RunAll();
  EXPECT_OK(outcomes_.back());
}

TEST_F(CheckpointCommandTest, CheckpointThatWasRemovedBeforeItsTurnIsAFailure) {
  removed_ = {"a"};
  Add("a");
  executor_.RunAll();
  EXPECT_THAT(runs_, IsEmpty());
  EXPECT_THAT(outcomes_.back(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("--checkpoint_keep")));
}

TEST_F(CheckpointCommandTest, CommandThatHoldsUpNewerCheckpointsIsNamedWithItsTime) {
  during_run_ = [this] {
    if (runs_.size() > 1) return;
    Add("b");
    EXPECT_THAT(outcomes_, IsEmpty()) << "a brief wait is not worth an alarm";
    clock_.AdvanceTime(absl::Minutes(7));
    Add("c");
  };
  Add("a");
  executor_.RunNext();
  EXPECT_THAT(outcomes_.front(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                          AllOf(HasSubstr("on a for 7m"), HasSubstr("2 newer"))));
}

TEST_F(CheckpointCommandTest, EndIsWaitedForWithPatienceAndTheRestIsDropped) {
  Add("a");
  Add("b");
  EXPECT_THAT(command_.Finish(absl::Seconds(3), [] { return false; }),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("2 checkpoints")));
  executor_.RunAll();
  EXPECT_THAT(runs_, IsEmpty());
  EXPECT_THAT(command_.Finish(absl::Seconds(3), [] { return false; }), IsOk());
}

TEST_F(CheckpointCommandTest, WaiterHearsTheOutcomeOfTheLastCommand) {
  std::vector<absl::Status> heard;
  const auto hear = [&heard](const absl::Status& outcome) { heard.push_back(outcome); };
  command_.OnceDone(hear);
  EXPECT_THAT(heard, ElementsAre(IsOk())) << "there is no command";
  Add("a");
  Add("b");
  command_.OnceDone(hear);
  executor_.RunNext();
  EXPECT_EQ(heard.size(), 1) << "b is still queued";
  result_ = absl::AbortedError("ended with exit code 3");
  executor_.RunNext();
  EXPECT_THAT(heard.back(), StatusIs(absl::StatusCode::kAborted, HasSubstr("for b: ")));
  command_.OnceDone(hear);
  EXPECT_THAT(heard.back(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(heard.size(), 3);
}

TEST_F(CheckpointCommandTest, WaiterHearsThatCommandsWereDropped) {
  std::vector<absl::Status> heard;
  const auto hear = [&heard](const absl::Status& outcome) { heard.push_back(outcome); };
  Add("a");
  command_.OnceDone(hear);
  command_.Finish(absl::Seconds(3), [] { return false; }).IgnoreError();
  EXPECT_THAT(heard, ElementsAre(StatusIs(absl::StatusCode::kDeadlineExceeded)));
  command_.OnceDone(hear);
  EXPECT_THAT(heard.back(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  executor_.RunAll();
  EXPECT_EQ(heard.size(), 2);
}

TEST_F(CheckpointCommandTest, SecondSignalEndsTheRunningCommand) {
  during_run_ = [this] {
    EXPECT_THAT(command_.Finish(absl::Hours(1), [] { return true; }),
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("on a")));
  };
  Add("a");
  executor_.RunAll();
  EXPECT_THAT(outcomes_.back(), StatusIs(absl::StatusCode::kCancelled, HasSubstr("was ended")));
}

}  // namespace
}  // namespace lodestar::host
