// SPDX-License-Identifier: Apache-2.0

#include "common/process/stop_signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace lodestar::process {
namespace {

TEST(StopSignalsTest, ClosedTerminalAsksToEndUnlessThatIsIgnored) {
  sigset_t signals = StopSignals();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) EXPECT_EQ(sigismember(&signals, signal), 1);
  std::signal(SIGHUP, SIG_IGN);  // nohup does the same
  signals = StopSignals();
  std::signal(SIGHUP, SIG_DFL);
  EXPECT_EQ(sigismember(&signals, SIGHUP), 0);
  EXPECT_EQ(sigismember(&signals, SIGTERM), 1);
}

TEST(StopSignalsTest, IgnoredSignalsStayIgnored) {
  for (const int signal : {SIGTERM, SIGXCPU, SIGUSR1, SIGUSR2}) {
    const auto is_asked = [signal] {
      const sigset_t stop = StopSignals();
      const sigset_t save = SaveSignals();
      return sigismember(&stop, signal) == 1 || sigismember(&save, signal) == 1;
    };
    EXPECT_TRUE(is_asked()) << signal;
    std::signal(signal, SIG_IGN);
    EXPECT_FALSE(is_asked()) << signal;
    std::signal(signal, SIG_DFL);
  }
}

TEST(StopSignalsTest, IgnoredInterruptCountsOnlyInTheBackgroundOfAScript) {
  std::signal(SIGINT, SIG_IGN);
  sigset_t signals = StopSignals();
  EXPECT_EQ(sigismember(&signals, SIGINT), 0);
  std::signal(SIGQUIT, SIG_IGN);
  signals = StopSignals();
  EXPECT_EQ(sigismember(&signals, SIGINT), 1);
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGQUIT, SIG_DFL);
}

TEST(StopSignalsTest, BlockedSignalsAreTaken) {
  BlockStopSignals();
  EXPECT_EQ(PendingStopSignal(), 0);
  raise(SIGTERM);
  EXPECT_EQ(PendingStopSignal(), SIGTERM);
  const sigset_t signals = StopSignals();
  int taken = 0;
  ASSERT_EQ(sigwait(&signals, &taken), 0);
  EXPECT_EQ(taken, SIGTERM);
}

siginfo_t SignalOf(int signal) {
  siginfo_t info = {};
  info.si_signo = signal;
  info.si_code = SI_USER;
  return info;
}

using Meaning = SignalFilter::Meaning;
constexpr absl::Duration kMoment = absl::Milliseconds(1);

TEST(SignalFilterTest, SignalsWithinASecondAreOneWishToStop) {
  SignalFilter filter;
  const absl::Time begin = absl::UnixEpoch();
  EXPECT_EQ(filter.Take(SignalOf(SIGTERM), begin), Meaning::kStop);
  EXPECT_EQ(filter.Take(SignalOf(SIGTERM), begin + kMoment), Meaning::kRepeat);
  EXPECT_EQ(filter.Take(SignalOf(SIGINT), begin + absl::Milliseconds(999)), Meaning::kRepeat);
  EXPECT_EQ(filter.num_stops(), 1);
  EXPECT_EQ(filter.Take(SignalOf(SIGINT), begin + absl::Seconds(1)), Meaning::kStop);
  EXPECT_EQ(filter.num_stops(), 2);
  EXPECT_EQ(filter.Take(SignalOf(SIGINT), begin + absl::Seconds(1) + kMoment), Meaning::kRepeat);
}

TEST(SignalFilterTest, ProcessorTimeThatIsUsedUpIsOneWishHoweverOftenItIsTold) {
  SignalFilter filter;
  absl::Time now = absl::UnixEpoch();
  EXPECT_EQ(filter.Take(SignalOf(SIGXCPU), now), Meaning::kStop);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(filter.Take(SignalOf(SIGXCPU), now += absl::Seconds(1)), Meaning::kRepeat);
  }
  EXPECT_EQ(filter.Take(SignalOf(SIGTERM), now), Meaning::kStop) << "a person's";
}

TEST(SignalFilterTest, SaveSignalsSaveUnlessTheProgramIsStopping) {
  SignalFilter filter;
  absl::Time now = absl::UnixEpoch();
  EXPECT_EQ(filter.Take(SignalOf(SIGUSR1), now), Meaning::kSave);
  EXPECT_EQ(filter.Take(SignalOf(SIGUSR2), now + kMoment), Meaning::kRepeat);
  EXPECT_EQ(filter.Take(SignalOf(SIGUSR2), now += absl::Seconds(1)), Meaning::kSave);
  EXPECT_EQ(filter.Take(SignalOf(SIGTERM), now), Meaning::kStop);
  EXPECT_EQ(filter.Take(SignalOf(SIGUSR1), now + absl::Seconds(5)), Meaning::kRepeat);
}

// A second signal of AskToStop() is a repeat. A second SIGTERM without that mark is a new request.
TEST(SignalFilterTest, ProgramThatIsAskedToStopIsNotStoppedTwice) {
  BlockStopSignals();
  AskToStop(getpid());
  const sigset_t signals = StopSignals();
  siginfo_t asked = {};
  ASSERT_EQ(sigwaitinfo(&signals, &asked), SIGTERM);
  const absl::Time begin = absl::UnixEpoch();
  SignalFilter filter;
  EXPECT_EQ(filter.Take(asked, begin), Meaning::kStop);
  EXPECT_EQ(filter.Take(asked, begin + absl::Minutes(1)), Meaning::kRepeat);
  EXPECT_EQ(filter.Take(SignalOf(SIGTERM), begin + absl::Minutes(1)), Meaning::kStop);
}

TEST(SignalWaiterTest, CallsBackForEachWish) {
  BlockStopSignals();
  std::string seen;
  absl::Notification is_saved;
  absl::Notification is_stopped;
  {
    SignalWaiter waiter(
        [&](int count, int signal) {
          absl::StrAppend(&seen, "stop ", count, " by ", signal, "\n");
          is_stopped.Notify();
        },
        [&](int signal) {
          absl::StrAppend(&seen, "save by ", signal, "\n");
          is_saved.Notify();
        });
    kill(getpid(), SIGUSR1);
    is_saved.WaitForNotification();
    kill(getpid(), SIGINT);
    is_stopped.WaitForNotification();
  }
  EXPECT_EQ(seen, absl::StrCat("save by ", SIGUSR1, "\nstop 1 by ", SIGINT, "\n"));
}

TEST(SignalWaiterTest, EndsWhereItsSignalsAreIgnored) {
  std::signal(SIGTERM, SIG_IGN);
  BlockStopSignals();
  int stops = 0;
  {
    SignalWaiter waiter([&](int, int) { ++stops; }, [](int) {});
    kill(getpid(), SIGTERM);
  }
  std::signal(SIGTERM, SIG_IGN);  // setting this drops pending signals
  std::signal(SIGTERM, SIG_DFL);
  EXPECT_EQ(stops, 0);
}

}  // namespace
}  // namespace lodestar::process
