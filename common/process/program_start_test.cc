// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>
#include <sys/resource.h>

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
TEST(ProgramStartDeathTest, ThreadThatCannotBeStartedEndsTheProcessWithASentence) {
  EXPECT_EXIT(
      {
        rlimit limit = {};
        getrlimit(RLIMIT_AS, &limit);
        limit.rlim_cur = 1;  // the process may not use more memory than it uses now
        setrlimit(RLIMIT_AS, &limit);
        std::thread([] {}).join();
      },
      ::testing::ExitedWithCode(1), "^cannot start a thread: memory is limited");
}
#endif

}  // namespace
}  // namespace lodestar::process
