// SPDX-License-Identifier: Apache-2.0

#include "server/sync/push_space.h"

#include <algorithm>
#include <map>
#include <set>

namespace lodestar::sync {
namespace {

bool IsLessDone(const UnfinishedPush& a, const UnfinishedPush& b) {
  // The received shares of the two buckets are compared, because buckets have different sizes.
  // Doubles are exact enough, because all numbers are below 2^40.
  const double a_part = static_cast<double>(a.received_bytes) * static_cast<double>(b.total_bytes);
  const double b_part = static_cast<double>(b.received_bytes) * static_cast<double>(a.total_bytes);
  return a_part < b_part || (a_part == b_part && a.bucket < b.bucket);
}

}  // namespace

PushSpace PushSpaceOf(absl::Span<const UnfinishedPush> unfinished,
                      absl::Span<const Pusher> waiting) {
  std::map<Pusher, UnfinishedPush> least;
  for (const UnfinishedPush& push : unfinished) {
    const auto [row, is_first] = least.emplace(push.pusher, push);
    if (is_first) continue;
    const absl::Duration silence = std::min(row->second.silence, push.silence);
    if (IsLessDone(push, row->second)) row->second = push;
    row->second.silence = silence;
  }
  PushSpace space;
  for (const auto& [pusher, push] : least) space.unfinished.push_back(push);
  for (const Pusher& pusher : std::set<Pusher>(waiting.begin(), waiting.end())) {
    const bool is_behind_others = least.size() > least.count(pusher);
    if (is_behind_others) space.held.push_back(pusher);
  }
  return space;
}

}  // namespace lodestar::sync
