// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/stragglers/member_pushes.h"

#include <algorithm>

namespace lodestar::stragglers {

void MemberPushes::OnSpace(int number, const sync::PushSpace& space, const sync::Pusher& member,
                           absl::Time now) {
  const auto unfinished =
      std::find_if(space.unfinished.begin(), space.unfinished.end(),
                   [&](const sync::UnfinishedPush& push) { return push.pusher == member; });
  const bool has_space = unfinished != space.unfinished.end();
  const bool is_held = std::count(space.held.begin(), space.held.end(), member) > 0;
  if (is_held) held_at_ = now;
  if (!has_space && !is_held && !shards_.contains(number)) return;
  Shard& shard = shards_[number];
  if (shard.is_held && !shard.unfinished.has_value()) {
    const absl::Duration held_for = now - shard.told_at;
    shard.space_kept_since += held_for;
    for (auto& [place, course] : shard.courses) course.since += held_for;
  }
  shard.told_at = now;
  shard.is_held = is_held;
  shard.unfinished.reset();
  shard.silent_since = absl::InfiniteFuture();
  if (has_space && unfinished->silence > absl::ZeroDuration()) {
    shard.silent_since = now - unfinished->silence;
  }
  if (has_space) shard.unfinished = Place{unfinished->round, unfinished->bucket};
  shard.others_wait = has_space && space.held.size() > (is_held ? 1u : 0u);
  if (shard.former.has_value() && shard.former != shard.unfinished) {
    shard.courses.erase(*shard.former);
    shard.former.reset();
    shard.space_kept_since = absl::InfiniteFuture();
  }
  if (!has_space) return;
  Course& course = shard.courses.try_emplace(*shard.unfinished, Course{.since = now}).first->second;
  course.received_bytes = std::max(course.received_bytes, unfinished->received_bytes);
  course.total_bytes = unfinished->total_bytes;
  if (shard.others_wait) shard.space_kept_since = std::min(shard.space_kept_since, now);
}

void MemberPushes::OnGrant() {
  for (auto& [number, shard] : shards_) {
    shard.former = shard.unfinished;
    std::erase_if(shard.courses,
                  [&shard = shard](const auto& course) { return shard.former != course.first; });
    if (!shard.former.has_value()) shard.space_kept_since = absl::InfiniteFuture();
  }
}

std::vector<MemberPushes::Unfinished> MemberPushes::unfinished() const {
  std::vector<Unfinished> unfinished;
  for (const auto& [number, shard] : shards_) {
    if (!shard.unfinished.has_value()) continue;
    const Course& course = shard.courses.at(*shard.unfinished);
    unfinished.push_back({.shard = number,
                          .bucket = shard.unfinished->bucket,
                          .received_bytes = course.received_bytes,
                          .total_bytes = course.total_bytes,
                          .since = course.since,
                          .others_wait = shard.others_wait,
                          .space_kept_since = shard.space_kept_since,
                          .silent_since = shard.silent_since,
                          .told_at = shard.told_at});
  }
  return unfinished;
}

bool MemberPushes::is_held() const {
  return std::any_of(shards_.begin(), shards_.end(),
                     [](const auto& shard) { return shard.second.is_held; });
}

bool MemberPushes::keeps_space() const {
  return std::any_of(shards_.begin(), shards_.end(),
                     [](const auto& shard) { return shard.second.others_wait; });
}

}  // namespace lodestar::stragglers
