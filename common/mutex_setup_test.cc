#include "common/mutex_setup.h"

#include <gtest/gtest.h>

#include <cstdlib>

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

TEST(MutexSetupDeathTest, LocksAreNotWatched) {
  // An Abseil that watches aborts here, unless it was built not to.
  EXPECT_EXIT(
      {
        SetUpMutexes();
        LockInBothOrders();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace lodestar
