// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

namespace lodestar::process {
namespace {

TEST(ProgramStartTest, ThreadsAreStarted) {
  int runs = 0;
  std::thread([&runs] { ++runs; }).join();
  EXPECT_EQ(runs, 1);
}

#ifndef LODESTAR_SANITIZER  // sanitizers need more memory than the limit below allows
void SetMemoryLimit(rlim_t limit_bytes) {
  rlimit limit = {};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = limit_bytes;
  setrlimit(RLIMIT_AS, &limit);
}

TEST(ProgramStartDeathTest, ThreadThatIsRefusedForSecondsIsStartedAfterThat) {
  EXPECT_EXIT(
      {
        signal(SIGALRM, [](int) { SetMemoryLimit(RLIM_INFINITY); });
        SetMemoryLimit(1);  // the process may not use more memory than it uses now
        alarm(2);
        bool has_run = false;
        std::thread([&has_run] { has_run = true; }).join();
        std::_Exit(has_run ? 0 : 1);
      },
      ::testing::ExitedWithCode(0),
      "warning this process cannot start a thread and tries again(.|\n)*info this process can "
      "start threads again");
}
#endif

}  // namespace
}  // namespace lodestar::process
