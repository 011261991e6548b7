// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/pull_order.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace lodestar::trainer {

std::vector<uint32_t> PullOrder(absl::Span<const uint32_t> needed,
                                absl::Span<const LeavingBucket> leaving,
                                absl::Span<const int64_t> pulled_bytes, double up_per_down) {
  // Position of each bucket in `needed`.
  std::vector<size_t> places(pulled_bytes.size());
  for (size_t i = 0; i < needed.size(); ++i) places[needed[i]] = i;
  std::vector<bool> is_leaving(pulled_bytes.size(), false);
  for (const LeavingBucket& bucket : leaving) is_leaving[bucket.bucket] = true;

  // Positions in `needed` of the buckets that may be pulled next, because their contributions have
  // been sent at the time `now`.
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < needed.size(); ++i) {
    if (!is_leaving[needed[i]]) ready.push(i);
  }
  std::vector<uint32_t> order;
  double now = 0.0;  // Time is counted in bytes sent.
  auto next = leaving.begin();
  while (order.size() < needed.size()) {
    if (ready.empty()) now = std::max(now, static_cast<double>(next->bytes_until_gone));
    for (; next != leaving.end() && static_cast<double>(next->bytes_until_gone) <= now; ++next) {
      ready.push(places[next->bucket]);
    }
    const uint32_t bucket = needed[ready.top()];
    ready.pop();
    order.push_back(bucket);
    now += static_cast<double>(pulled_bytes[bucket]) * up_per_down;
  }
  return order;
}

}  // namespace lodestar::trainer
