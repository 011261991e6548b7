#include "common/process_setup.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <thread>

#include "absl/synchronization/mutex.h"

namespace lodestar {
namespace {

void LockInBothOrders() {
  absl::Mutex a, b;
  {
    absl::MutexLock first(&a);
    absl::MutexLock second(&b);
  }
  absl::MutexLock first(&b);
  absl::MutexLock second(&a);
}

TEST(ProcessSetupDeathTest, LocksAreNotWatched) {
  // An Abseil that watches aborts here, unless it was built not to.
  EXPECT_EXIT(
      {
        SetUpMutexes();
        LockInBothOrders();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

#ifndef LODESTAR_SANITIZER  // which take memory of their own
TEST(ProcessSetupDeathTest, AThreadThatCannotBeStartedIsSaid) {
  EXPECT_EXIT(
      {
        SetUpMalloc();
        rlimit limit = {};
        getrlimit(RLIMIT_AS, &limit);
        limit.rlim_cur = 1;  // nothing more than there is
        setrlimit(RLIMIT_AS, &limit);
        // GoogleTest would catch what is thrown.
        []() noexcept { std::thread([] {}).join(); }();
      },
      ::testing::ExitedWithCode(1), "^cannot start a thread: memory is limited");
}
#endif

#if defined(__GLIBC__) && !defined(LODESTAR_SANITIZER)
TEST(ProcessSetupTest, LargeBlocksAreKeptOnceTheThresholdsAreRaised) {
  RaiseMallocThresholds();
  const size_t before = mallinfo2().hblks;  // those that go back to the kernel at once
  void* volatile block = std::malloc(size_t{16} << 20);
  EXPECT_EQ(mallinfo2().hblks, before);
  std::free(block);
}
#endif

TEST(ProcessSetupTest, MayHaveAsManyFilesAsItCan) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  RaiseFileLimit();
  rlimit after = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(after.rlim_cur, std::min<rlim_t>(before.rlim_max, 1 << 20));
}

// Volatile, so that the processor computes it, not the compiler.
float Product(float x, float y) {
  volatile float factor = x;
  return factor * y;
}

#ifdef __SSE2__
TEST(ProcessSetupTest, DenormalsAreZeroInThisThreadAndThoseStartedLater) {
  constexpr float kSmallest = std::numeric_limits<float>::min();
  constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
  ASSERT_GT(Product(kSmallest, 0.5f), 0.0f);
  FlushDenormals();
  EXPECT_EQ(Product(kSmallest, 0.5f), 0.0f);
  std::thread([] {
    EXPECT_EQ(Product(kSmallest, 0.5f), 0.0f);
    EXPECT_EQ(Product(kDenormal, 1e30f), 0.0f);
  }).join();
  EXPECT_EQ(Product(4 * kSmallest, 0.5f), 2 * kSmallest);
}
#endif

}  // namespace
}  // namespace lodestar
