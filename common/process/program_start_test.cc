#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <thread>

namespace lodestar {
namespace {

TEST(ProgramStartTest, ThreadsAreStarted) {
  int runs = 0;
  std::thread([&runs] { ++runs; }).join();
  EXPECT_EQ(runs, 1);
}

#ifndef LODESTAR_SANITIZER  // sanitizers take memory of their own
TEST(ProgramStartDeathTest, ThreadThatCannotBeStartedEndsTheProcessWithASentence) {
  EXPECT_EXIT(
      {
        rlimit limit = {};
        getrlimit(RLIMIT_AS, &limit);
        limit.rlim_cur = 1;  // allows no more memory than is in use now
        setrlimit(RLIMIT_AS, &limit);
        std::thread([] {}).join();
      },
      ::testing::ExitedWithCode(1), "^cannot start a thread: memory is limited");
}
#endif

}  // namespace
}  // namespace lodestar
