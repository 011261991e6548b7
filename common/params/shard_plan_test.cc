// SPDX-License-Identifier: Apache-2.0

#include "common/params/shard_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/testing/awkward_layouts.h"
#include "common/testing/status_matchers.h"

namespace lodestar::params {
namespace {

std::vector<int> ServerCounts(const Layout& layout) {
  std::vector<int> counts;
  const int64_t limit = std::min<int64_t>(layout.num_elements(), kMaxServers);
  for (int count : {1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 64, 100, 127, 255, 256}) {
    if (count < limit) counts.push_back(count);
  }
  counts.push_back(static_cast<int>(limit));
  return counts;
}

void ExpectCovers(const std::vector<ElementRange>& ranges, ElementRange whole) {
  int64_t expected = whole.begin;
  for (const ElementRange& range : ranges) {
    ASSERT_EQ(range.begin, expected);
    ASSERT_GT(range.size(), 0);
    expected = range.end;
  }
  ASSERT_EQ(expected, whole.end);
}

TEST(PlanShardsTest, CoversEveryElementOnceWithinFivePercent) {
  for (const auto& [name, layout] : AwkwardLayouts()) {
    for (int num_servers : ServerCounts(layout)) {
      SCOPED_TRACE(name + ", servers: " + std::to_string(num_servers));
      ASSERT_OK_AND_ASSIGN(const std::vector<ElementRange> shards, PlanShards(layout, num_servers));
      ASSERT_EQ(shards.size(), num_servers);
      ExpectCovers(shards, {0, layout.num_elements()});
      const double mean = static_cast<double>(layout.num_elements()) / num_servers;
      if (mean < 64) continue;
      for (const ElementRange& shard : shards) {
        ASSERT_LE(std::abs(shard.size() - mean), 0.05 * mean);
      }
    }
  }
}

TEST(PlanShardsTest, OneServerPerElementGetsOneElementEach) {
  ASSERT_OK_AND_ASSIGN(const std::vector<ElementRange> shards,
                       PlanShards(LayoutOfBlocks({97, 1, 3}), 101));
  for (const ElementRange& shard : shards) EXPECT_EQ(shard.size(), 1);
}

TEST(PlanShardsTest, RefusesCountsOutOfRange) {
  const Layout small = LayoutOfBlocks({5});
  for (int num_servers : {0, -1, 6}) {
    EXPECT_THAT(PlanShards(small, num_servers),
                StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("1 to 5")));
  }
  EXPECT_THAT(PlanShards(LayoutOfBlocks({100000}), 257),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("1 to 256")));
}

TEST(PlanShardsTest, LargestLayoutDoesNotOverflow) {
  const Layout layout = LayoutOfBlocks({Layout::kMaxElements});
  ASSERT_OK_AND_ASSIGN(const std::vector<ElementRange> shards, PlanShards(layout, kMaxServers));
  ExpectCovers(shards, {0, layout.num_elements()});
}

TEST(SegmentsTest, AreTheSameForAnyNumberOfServers) {
  for (const auto& [name, layout] : AwkwardLayouts()) {
    SCOPED_TRACE(name);
    const std::vector<ElementRange> all = SegmentsOf(layout, {0, layout.num_elements()});
    ExpectCovers(all, {0, layout.num_elements()});
    for (int num_servers : ServerCounts(layout)) {
      std::vector<ElementRange> joined;
      ASSERT_OK_AND_ASSIGN(const auto shards, PlanShards(layout, num_servers));
      for (const ElementRange& shard : shards) {
        const std::vector<ElementRange> segments = SegmentsOf(layout, shard);
        joined.insert(joined.end(), segments.begin(), segments.end());
      }
      ASSERT_EQ(joined, all) << num_servers << " servers";
    }
  }
}

TEST(SegmentsTest, StartAtBlocksAndAreAPowerOfTwo) {
  for (const auto& [name, layout] : AwkwardLayouts()) {
    SCOPED_TRACE(name);
    const int64_t length = SegmentElements(layout);
    EXPECT_TRUE(std::has_single_bit(static_cast<uint64_t>(length)));
    for (int block = 0; block < layout.num_blocks(); ++block) {
      const std::vector<ElementRange> segments = SegmentsOf(layout, layout.block(block));
      ExpectCovers(segments, layout.block(block));
      for (size_t i = 0; i + 1 < segments.size(); ++i) ASSERT_EQ(segments[i].size(), length);
      ASSERT_LE(segments.back().size(), length);
    }
  }
}

TEST(SegmentsTest, AreFewEnoughToSendOneSumEach) {
  for (const auto& [name, layout] : AwkwardLayouts()) {
    const size_t limit = 2 * 5120 + layout.num_blocks() + layout.num_elements() / 65536;
    EXPECT_LE(SegmentsOf(layout, {0, layout.num_elements()}).size(), limit) << name;
  }
}

TEST(SegmentsDeathTest, RangesThatCutASegmentAreOurOwnMistake) {
  const Layout layout = LayoutOfBlocks({1'000'000});
  ASSERT_GT(SegmentElements(layout), 1);
  EXPECT_DEATH(SegmentsOf(layout, {1, 1'000'000}), "cuts a segment");
}

}  // namespace
}  // namespace lodestar::params
