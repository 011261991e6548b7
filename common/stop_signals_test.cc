#include "common/stop_signals.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <csignal>

namespace lodestar {
namespace {

TEST(StopSignalsTest, ClosedTerminalAsksToEndUnlessThatIsIgnored) {
  sigset_t signals = StopSignals();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) EXPECT_EQ(sigismember(&signals, signal), 1);
  std::signal(SIGHUP, SIG_IGN);  // as nohup does
  signals = StopSignals();
  std::signal(SIGHUP, SIG_DFL);
  EXPECT_EQ(sigismember(&signals, SIGHUP), 0);
  EXPECT_EQ(sigismember(&signals, SIGTERM), 1);
}

TEST(StopSignalsTest, BlockedSignalsAreTaken) {
  BlockStopSignals();
  raise(SIGTERM);
  const sigset_t signals = StopSignals();
  int taken = 0;
  ASSERT_EQ(sigwait(&signals, &taken), 0);
  EXPECT_EQ(taken, SIGTERM);
}

}  // namespace
}  // namespace lodestar
