#include "server/coordinator/member_pushes.h"

#include <algorithm>

namespace lodestar {

void MemberPushes::OnSpace(int shard, const PushSpace& space, const Pusher& member,
                           absl::Time now) {
  const auto unfinished =
      std::find_if(space.unfinished.begin(), space.unfinished.end(),
                   [&](const UnfinishedPush& push) { return push.pusher == member; });
  const bool is_held = std::count(space.held.begin(), space.held.end(), member) > 0;
  shards_.erase(shard);
  if (is_held) held_at_ = now;
  if (unfinished == space.unfinished.end()) {
    if (is_held) shards_[shard] = {.is_held = true};
    return;
  }
  const bool others_wait = space.held.size() > (is_held ? 1u : 0u);
  const Place place = {shard, unfinished->round, unfinished->bucket};
  shards_[shard] = {.is_held = is_held, .unfinished = place, .others_wait = others_wait};
  Course& course = courses_.try_emplace(place, Course{.since = now}).first->second;
  course.received_bytes = std::max(course.received_bytes, unfinished->received_bytes);
  course.total_bytes = unfinished->total_bytes;
  if (others_wait) keeps_space_since_ = std::min(keeps_space_since_, now);
}

void MemberPushes::OnGrant() {
  std::erase_if(courses_, [this](const auto& course) {
    const auto shard = shards_.find(course.first.shard);
    return shard == shards_.end() || shard->second.unfinished != course.first;
  });
  if (!keeps_space()) keeps_space_since_ = absl::InfiniteFuture();
}

std::vector<MemberPushes::Unfinished> MemberPushes::unfinished() const {
  std::vector<Unfinished> unfinished;
  for (const auto& [number, shard] : shards_) {
    if (!shard.unfinished.has_value()) continue;
    const Course& course = courses_.at(*shard.unfinished);
    unfinished.push_back({.shard = number,
                          .bucket = shard.unfinished->bucket,
                          .received_bytes = course.received_bytes,
                          .total_bytes = course.total_bytes,
                          .since = course.since,
                          .others_wait = shard.others_wait});
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

}  // namespace lodestar
