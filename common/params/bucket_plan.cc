// SPDX-License-Identifier: Apache-2.0

#include "common/params/bucket_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/params/shard_plan.h"
#include "common/runtime/status_macros.h"

namespace lodestar::params {
namespace {

absl::Status CheckCover(const Layout& layout, const std::vector<ElementRange>& shards) {
  int64_t covered = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].begin != covered || shards[i].end <= shards[i].begin) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shard ", i, " is [", shards[i].begin, ", ", shards[i].end,
          "), but it must begin at element ", covered, " and have at least one element"));
    }
    covered = shards[i].end;
  }
  if (covered != layout.num_elements()) {
    return absl::InvalidArgumentError(absl::StrCat("the shards end at element ", covered,
                                                   ", but the model has ", layout.num_elements(),
                                                   " elements"));
  }
  return absl::OkStatus();
}

// Cuts `part`, which is in one block and one shard, into buckets of whole segments. All these
// buckets have nearly the same size. A small last bucket would cost a whole message.
absl::Status AppendBuckets(ElementRange part, int shard, int block, int64_t segment,
                           int64_t max_segments_per_bucket, std::vector<Bucket>& buckets) {
  const int64_t num_segments = (part.size() + segment - 1) / segment;
  const int64_t num_buckets =
      (num_segments + max_segments_per_bucket - 1) / max_segments_per_bucket;
  if (num_buckets > kMaxBuckets - static_cast<int64_t>(buckets.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the elements up to ", part.end, " would be cut into ", num_buckets + buckets.size(),
        " buckets, allowed are ", kMaxBuckets, "; give a larger --bucket_bytes"));
  }
  for (int64_t i = 0; i < num_buckets; ++i) {
    Bucket bucket;
    bucket.index = static_cast<uint32_t>(buckets.size());
    bucket.shard = shard;
    bucket.block = block;
    bucket.range.begin = part.begin + num_segments * i / num_buckets * segment;
    bucket.range.end =
        std::min(part.begin + num_segments * (i + 1) / num_buckets * segment, part.end);
    buckets.push_back(bucket);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Bucket>> PlanBuckets(const Layout& layout,
                                                const std::vector<ElementRange>& shards,
                                                int64_t bucket_bytes) {
  constexpr int64_t kElementBytes = sizeof(float);
  if (bucket_bytes < kElementBytes) {
    return absl::InvalidArgumentError(absl::StrCat("--bucket_bytes=", bucket_bytes, " is below ",
                                                   kElementBytes, "; give at least ",
                                                   kElementBytes));
  }
  RETURN_IF_ERROR(CheckCover(layout, shards));
  const int64_t segment = SegmentElements(layout);
  const int64_t max_segments = std::max<int64_t>(1, bucket_bytes / kElementBytes / segment);
  std::vector<Bucket> buckets;
  int block = 0;
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    int64_t begin = shards[shard].begin;
    while (begin < shards[shard].end) {
      const ElementRange part = {begin, std::min(layout.block(block).end, shards[shard].end)};
      RETURN_IF_ERROR(
          AppendBuckets(part, static_cast<int>(shard), block, segment, max_segments, buckets));
      begin = part.end;
      if (begin == layout.block(block).end) ++block;
    }
  }
  return buckets;
}

}  // namespace lodestar::params
