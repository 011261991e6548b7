// SPDX-License-Identifier: Apache-2.0

// Holds what the servers report of a member's pushes. For each server: the push that has space and
// is incomplete, since when it is so, and whether other members wait for that space. Also says
// whether a server holds the member's pushes until other members have finished. Pure: the caller
// passes in the servers' signs of life and the time.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/runtime/ids.h"
#include "server/sync/push_space.h"

namespace lodestar::stragglers {

// Time does not count while a server holds the member's pushes and the member has no space there.
// `since` and `space_kept_since` then move later by that time.
class MemberPushes {
 public:
  struct Unfinished {
    int shard = 0;
    uint32_t bucket = 0;
    // Maximum of the bytes received in any call for this push. If a call is cut, the push begins
    // anew, and the maximum stays.
    int64_t received_bytes = 0;
    int64_t total_bytes = 0;
    absl::Time since;          // time of the first report of this push, over all its calls
    bool others_wait = false;  // true means that other members wait for its space
    // Time since which others have waited for space at this server that the member occupies. Only
    // space for the member's present work counts. Infinite future means that no member has waited.
    absl::Time space_kept_since = absl::InfiniteFuture();
    // Time since which no byte of any of the member's pushes to this server has come, although the
    // server was reading. Infinite future means that one of the pushes moves.
    absl::Time silent_since = absl::InfiniteFuture();
    absl::Time told_at;  // time of the server's last report
  };

  // Records a sign of life of the server of `shard`, which replaces its previous one. `member` is
  // the member that this object is about.
  void OnSpace(int shard, const sync::PushSpace& space, const sync::Pusher& member, absl::Time now);
  // Records that the member has new work. A later push of the same bucket is then a new push, not a
  // repetition.
  void OnGrant();

  // Returns the unfinished pushes, ascending by shard.
  std::vector<Unfinished> unfinished() const;
  bool is_held() const;
  // Returns the last time at which a server reported that it holds the member's pushes.
  absl::Time held_at() const { return held_at_; }
  bool keeps_space() const;

 private:
  struct Place {
    Round round;
    uint32_t bucket = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  struct Course {
    absl::Time since;
    int64_t received_bytes = 0;
    int64_t total_bytes = 0;
  };
  struct Shard {
    absl::Time told_at;
    bool is_held = false;
    std::optional<Place> unfinished = {};
    bool others_wait = false;
    absl::Time space_kept_since = absl::InfiniteFuture();
    absl::Time silent_since = absl::InfiniteFuture();
    std::map<Place, Course> courses = {};
    // A push of the previous work. It was not whole in the server's last report before the new work
    // was given, and may have become whole after that report.
    std::optional<Place> former = {};
  };

  std::map<int, Shard> shards_;  // shards that have reported pushes of the member
  absl::Time held_at_ = absl::InfinitePast();
};

}  // namespace lodestar::stragglers
