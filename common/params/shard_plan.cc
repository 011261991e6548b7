// SPDX-License-Identifier: Apache-2.0

#include "common/params/shard_plan.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/runtime/check.h"

namespace lodestar::params {
namespace {

// The size of a shard differs from the mean size by at most mean / kBalanceParts.
constexpr int64_t kBalanceParts = 20;
// Maximum number of elements of a segment: 256 KiB of fp32. A bucket of default size has several
// segments. A model has few enough segments that a sum of squares for each can be sent.
constexpr int64_t kMaxSegmentElements = 1 << 16;

int BlockAt(const Layout& layout, int64_t element) {
  int low = 0;
  int high = layout.num_blocks() - 1;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (layout.block(middle).end <= element) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Returns the segment boundary nearest to `element`. If two are equally near, returns the lower.
int64_t NearestBoundary(const Layout& layout, int64_t segment, int64_t element) {
  if (element >= layout.num_elements()) return layout.num_elements();
  const ElementRange block = layout.block(BlockAt(layout, element));
  const int64_t below = block.begin + (element - block.begin) / segment * segment;
  const int64_t above = std::min(below + segment, block.end);
  return element - below <= above - element ? below : above;
}

bool IsBoundary(const Layout& layout, int64_t segment, int64_t element) {
  return NearestBoundary(layout, segment, element) == element;
}

}  // namespace

int64_t SegmentElements(const Layout& layout) {
  // Each end of a shard moves by at most half a segment, so the shard's size changes by at most one
  // segment. With kMaxServers servers, a segment is at most 5 % of a shard.
  const int64_t limit = layout.num_elements() / (kMaxServers * kBalanceParts);
  return std::clamp<int64_t>(std::bit_floor(static_cast<uint64_t>(limit)), 1, kMaxSegmentElements);
}

std::vector<ElementRange> SegmentsOf(const Layout& layout, ElementRange range) {
  const int64_t segment = SegmentElements(layout);
  LODESTAR_CHECK(0 <= range.begin && range.begin <= range.end && range.end <= layout.num_elements())
      << "range " << range.begin << " to " << range.end << " exceeds the " << layout.num_elements()
      << " elements of the model. This is a defect of Lodestar; report it";
  LODESTAR_CHECK(IsBoundary(layout, segment, range.begin) && IsBoundary(layout, segment, range.end))
      << "range " << range.begin << " to " << range.end << " cuts a segment of " << segment
      << " elements. This is a defect of Lodestar; report it";
  std::vector<ElementRange> segments;
  int64_t begin = range.begin;
  for (int block = BlockAt(layout, begin); begin < range.end; ++block) {
    const int64_t block_end = std::min(layout.block(block).end, range.end);
    while (begin < block_end) {
      const int64_t end = std::min(begin + segment, block_end);
      segments.push_back({begin, end});
      begin = end;
    }
  }
  return segments;
}

absl::StatusOr<std::vector<ElementRange>> PlanShards(const Layout& layout, int num_servers) {
  const int64_t limit = std::min<int64_t>(layout.num_elements(), kMaxServers);
  if (num_servers < 1 || num_servers > limit) {
    return absl::InvalidArgumentError(absl::StrCat("cannot cut ", layout.num_elements(),
                                                   " elements into shards for ", num_servers,
                                                   " servers; use 1 to ", limit, " servers"));
  }
  const int64_t segment = SegmentElements(layout);
  std::vector<ElementRange> shards;
  int64_t begin = 0;
  for (int server = 1; server <= num_servers; ++server) {
    // The product has at most 2^40 elements times 2^8 servers, so it does not overflow.
    const int64_t ideal_end = layout.num_elements() * server / num_servers;
    const int64_t end = NearestBoundary(layout, segment, ideal_end);
    LODESTAR_CHECK(begin < end) << "shard " << server - 1 << " is empty";
    shards.push_back({begin, end});
    begin = end;
  }
  return shards;
}

}  // namespace lodestar::params
