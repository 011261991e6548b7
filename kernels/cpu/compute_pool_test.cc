// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/compute_pool.h"

#include <atomic>
#include <vector>

#include "gtest/gtest.h"

namespace lodestar::cpu {
namespace {

TEST(ComputePoolTest, RunsEveryPartOnceInManyLoops) {
  for (int threads : {1, 2, 5}) {
    ComputePool pool(threads);
    for (int64_t parts : {0, 1, 2, 3, 64, 1000}) {
      for (int loop = 0; loop < 50; ++loop) {
        std::vector<int> runs(parts, 0);
        pool.Run(parts, [&](int64_t part, int) { ++runs[part]; });
        ASSERT_EQ(runs, std::vector<int>(parts, 1)) << "threads=" << threads;
      }
    }
  }
}

TEST(ComputePoolTest, ThreadsThatOverlapHaveDifferentIndices) {
  ComputePool pool(4);
  std::vector<std::atomic<int>> inside(4);
  pool.Run(500, [&](int64_t, int thread) {
    ASSERT_LT(thread, 4);
    EXPECT_EQ(inside[thread].fetch_add(1), 0);
    inside[thread].fetch_sub(1);
  });
}

TEST(ComputePoolTest, WritesAreSeenByTheCaller) {
  ComputePool pool(3);
  for (int loop = 0; loop < 1000; ++loop) {
    std::vector<int> values(7, -1);
    pool.Run(7, [&](int64_t part, int) { values[part] = static_cast<int>(part) + loop; });
    for (int part = 0; part < 7; ++part) ASSERT_EQ(values[part], part + loop);
  }
}

}  // namespace
}  // namespace lodestar::cpu
