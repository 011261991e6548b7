// SPDX-License-Identifier: Apache-2.0

#include "common/job/fragment_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/params/layout.h"
#include "common/params/shard_plan.h"
#include "common/runtime/random.h"
#include "common/testing/awkward_layouts.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"

namespace lodestar::job {
namespace {

using ::testing::HasSubstr;

std::vector<params::Bucket> BucketsOf(const params::Layout& layout, int num_servers,
                                      int64_t bucket_bytes) {
  return *params::PlanBuckets(layout, *params::PlanShards(layout, num_servers), bucket_bytes);
}

// Expects that the rounds of one cycle, beginning at any round, exchange each element once.
void ExpectOncePerCycle(const std::vector<params::Bucket>& buckets, int num_fragments,
                        int64_t first_round) {
  const FragmentPlan plan(buckets, num_fragments);
  std::vector<int> times(buckets.size(), 0);
  int64_t elements = 0;
  for (int64_t round = first_round; round < first_round + num_fragments; ++round) {
    const std::vector<uint32_t> due = plan.DueIn(Round(round));
    EXPECT_TRUE(std::is_sorted(due.begin(), due.end()));
    int64_t in_round = 0;
    for (const uint32_t bucket : due) {
      ++times[bucket];
      in_round += buckets[bucket].range.size();
      EXPECT_TRUE(plan.TurnOf(bucket).IsDue(Round(round)));
      EXPECT_FALSE(num_fragments > 1 && plan.TurnOf(bucket).IsDue(Round(round + 1)));
    }
    EXPECT_EQ(in_round, plan.ElementsOf(static_cast<int>(round % num_fragments)));
    elements += in_round;
  }
  EXPECT_THAT(times, ::testing::Each(1));
  EXPECT_EQ(elements, buckets.back().range.end);
}

TEST(FragmentPlanTest, ACycleExchangesEveryElementOnce) {
  for (const auto& [name, layout] : AwkwardLayouts()) {
    for (const int num_servers : {1, 3}) {
      if (num_servers > layout.num_elements()) continue;
      for (const int num_fragments : {1, 2, 5, 64}) {
        SCOPED_TRACE(absl::StrCat(name, ", servers: ", num_servers, ", parts: ", num_fragments));
        ExpectOncePerCycle(BucketsOf(layout, num_servers, 1 << 20), num_fragments, 7 * num_servers);
      }
    }
  }
}

TEST(FragmentPlanTest, SoItIsForRandomLayouts) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<int64_t> blocks;
    const PhiloxBlock shape = Philox(1, seed, 0);
    for (uint64_t i = 0; i < 1 + shape[0] % 20; ++i) {
      blocks.push_back(1 + Philox(2, seed, i)[0] % 5000);
    }
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ExpectOncePerCycle(BucketsOf(LayoutOfBlocks(blocks), 1, 256 + shape[1] % 4096),
                       static_cast<int>(1 + shape[2] % 12), shape[3] % 1000);
  }
}

TEST(FragmentPlanTest, FragmentsAreEqualUpToABucketOnEveryServer) {
  const params::Layout layout =
      LayoutOfBlocks({39'000'000, 7'000'000, 7'000'000, 7'000'000, 7'000'000});
  const std::vector<params::Bucket> buckets = BucketsOf(layout, 3, params::kDefaultBucketBytes);
  const FragmentPlan plan(buckets, 4);
  constexpr int64_t kLargest = params::kDefaultBucketBytes / 4;
  for (int shard = 0; shard < 3; ++shard) {
    std::vector<int64_t> elements(4, 0);
    for (const params::Bucket& bucket : buckets) {
      if (bucket.shard == shard) {
        elements[plan.TurnOf(bucket.index).fragment] += bucket.range.size();
      }
    }
    const auto [smallest, largest] = std::minmax_element(elements.begin(), elements.end());
    EXPECT_LE(*largest - *smallest, 2 * kLargest) << "shard " << shard;
  }
}

TEST(FragmentPlanTest, OneServerMakesTheSameOfItsOwnBuckets) {
  const std::vector<params::Bucket> all =
      BucketsOf(LayoutOfBlocks({5000, 3000, 7000, 100}), 3, 1000);
  const FragmentPlan plan(all, 4);
  for (int shard = 0; shard < 3; ++shard) {
    std::vector<params::Bucket> own;
    for (const params::Bucket& bucket : all) {
      if (bucket.shard == shard) own.push_back(bucket);
    }
    const FragmentPlan of_shard(own, 4);
    for (size_t i = 0; i < own.size(); ++i) {
      EXPECT_EQ(of_shard.TurnOf(static_cast<int64_t>(i)).fragment,
                plan.TurnOf(own[i].index).fragment);
    }
  }
}

TEST(FragmentPlanTest, AnEmptyFragmentIsRefusedByName) {
  const std::vector<params::Bucket> buckets = BucketsOf(LayoutOfBlocks({10, 10, 10}), 1, 1000);
  EXPECT_OK(FragmentPlan(buckets, 3).CheckComplete());
  EXPECT_THAT(FragmentPlan(buckets, 4).CheckComplete(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--fragments=4")));
}

TEST(StepsOfWindowTest, ACycleHasTheLocalSteps) {
  JobSpec job;
  for (const int steps : {1, 3, 30, 31, 500}) {
    for (const int fragments : {1, 2, 3, 7}) {
      if (fragments > steps) continue;
      job.local_steps = steps;
      job.fragments = fragments;
      int sum = 0;
      for (int64_t round = 5; round < 5 + fragments; ++round) {
        const int window = StepsOfWindow(job, Round(round));
        EXPECT_GE(window, steps / fragments);
        EXPECT_LE(window, steps / fragments + 1);
        sum += window;
      }
      EXPECT_EQ(sum, steps);
    }
  }
}

}  // namespace
}  // namespace lodestar::job
