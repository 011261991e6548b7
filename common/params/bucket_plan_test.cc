// SPDX-License-Identifier: Apache-2.0

#include "common/params/bucket_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/params/shard_plan.h"
#include "common/testing/awkward_layouts.h"
#include "common/testing/status_matchers.h"

namespace lodestar::params {
namespace {

bool Contains(ElementRange outer, ElementRange inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

void ExpectKeepsItsPromises(const Layout& layout, const std::vector<ElementRange>& shards,
                            int64_t bucket_bytes) {
  ASSERT_OK_AND_ASSIGN(const std::vector<Bucket> buckets,
                       PlanBuckets(layout, shards, bucket_bytes));
  const int64_t max_elements = std::max(bucket_bytes / 4, SegmentElements(layout));
  int64_t expected_begin = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const Bucket& bucket = buckets[i];
    ASSERT_EQ(bucket.index, i);
    ASSERT_EQ(bucket.range.begin, expected_begin);
    ASSERT_GT(bucket.range.size(), 0);
    ASSERT_LE(bucket.range.size(), max_elements);
    ASSERT_TRUE(Contains(shards[bucket.shard], bucket.range));
    ASSERT_TRUE(Contains(layout.block(bucket.block), bucket.range));
    expected_begin = bucket.range.end;
  }
  ASSERT_EQ(expected_begin, layout.num_elements());
}

TEST(PlanBucketsTest, EveryElementOnceWithinBlockShardAndSize) {
  for (const auto& [name, layout] : AwkwardLayouts()) {
    for (int num_servers : {1, 2, 3, 7, 64}) {
      if (num_servers > layout.num_elements()) continue;
      ASSERT_OK_AND_ASSIGN(const auto shards, PlanShards(layout, num_servers));
      for (int64_t bucket_bytes : {1000, 65537, 1 << 20, 4 << 20}) {
        if (layout.num_elements() * 4 / bucket_bytes > 100'000) continue;  // skips slow cases
        SCOPED_TRACE(name + ", servers: " + std::to_string(num_servers) +
                     ", bytes: " + std::to_string(bucket_bytes));
        ExpectKeepsItsPromises(layout, shards, bucket_bytes);
      }
    }
  }
}

TEST(PlanBucketsTest, SegmentsOfBucketsAreTheSegmentsOfTheSpace) {
  for (const auto& [name, layout] : AwkwardLayouts()) {
    SCOPED_TRACE(name);
    const std::vector<ElementRange> all = SegmentsOf(layout, {0, layout.num_elements()});
    for (int num_servers : {1, 3}) {
      if (num_servers > layout.num_elements()) continue;
      std::vector<ElementRange> joined;
      const auto buckets = PlanBuckets(layout, *PlanShards(layout, num_servers), 1 << 20);
      for (const Bucket& bucket : *buckets) {
        const std::vector<ElementRange> segments = SegmentsOf(layout, bucket.range);
        joined.insert(joined.end(), segments.begin(), segments.end());
      }
      ASSERT_EQ(joined, all);
    }
  }
}

TEST(PlanBucketsTest, LeavesNoTinyTail) {
  const Layout layout = LayoutOfBlocks({(1 << 20) + 65536});
  ASSERT_OK_AND_ASSIGN(const auto buckets,
                       PlanBuckets(layout, {{0, layout.num_elements()}}, kDefaultBucketBytes));
  ASSERT_EQ(buckets.size(), 2);
  EXPECT_NEAR(buckets[0].range.size(), buckets[1].range.size(), SegmentElements(layout));
}

TEST(PlanBucketsTest, OneElementPerBucketIsTheLeast) {
  const Layout layout = LayoutOfBlocks({3, 2});
  ASSERT_OK_AND_ASSIGN(const auto buckets, PlanBuckets(layout, {{0, 5}}, 4));
  EXPECT_EQ(buckets.size(), 5);
  EXPECT_THAT(PlanBuckets(layout, {{0, 5}}, 3),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("bucket_bytes=3")));
}

TEST(PlanBucketsTest, RefusesMoreBucketsThanAMessageHolds) {
  const Layout layout = LayoutOfBlocks({Layout::kMaxElements});
  EXPECT_THAT(PlanBuckets(layout, {{0, layout.num_elements()}}, 4),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::HasSubstr("16777216 buckets, allowed are 1048576")));
}

TEST(PlanBucketsTest, RefusesShardsThatDoNotCoverTheSpace) {
  const Layout layout = LayoutOfBlocks({5});
  const std::vector<std::vector<ElementRange>> bad = {
      {}, {{0, 4}}, {{0, 6}}, {{1, 5}}, {{0, 2}, {3, 5}}, {{0, 3}, {2, 5}}, {{0, 0}, {0, 5}}};
  for (const std::vector<ElementRange>& shards : bad) {
    EXPECT_THAT(PlanBuckets(layout, shards, 1024), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace lodestar::params
