// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/stop_signal_run.h"

#include <condition_variable>
#include <csignal>
#include <mutex>

#include "gtest/gtest.h"

namespace lodestar::psctl {
namespace {

void WaitForStop(std::stop_token stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait(lock, stop, [] { return false; });
}

// Death tests start a fresh process, because other threads do not survive a fork.
class StopSignalRunTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(StopSignalRunTest, ReturnsTheExitCodeOfACommandThatEndsByItself) {
  EXPECT_EXIT(_exit(RunUntilStopSignal([](std::stop_token) { return 7; })),
              testing::ExitedWithCode(7), "");
}

TEST_F(StopSignalRunTest, CommandCleansUpBeforeTheProcessDiesOfTheSignal) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(RunUntilStopSignal([signal](std::stop_token stop) {
                  kill(getpid(), signal);
                  WaitForStop(stop);
                  std::fputs("cleaned up", stderr);
                  return 1;
                }),
                testing::KilledBySignal(signal), "cleaned up");
  }
}

TEST_F(StopSignalRunTest, CommandThatHasEndedWellExitsWithZeroAfterASignal) {
  EXPECT_EXIT(_exit(RunUntilStopSignal([](std::stop_token stop) {
                kill(getpid(), SIGTERM);
                WaitForStop(stop);
                return 0;
              })),
              testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lodestar::psctl
