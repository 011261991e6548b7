// SPDX-License-Identifier: Apache-2.0

// Holds what the servers report about the pushes of a member. Pure: the caller passes in the
// servers' reports and the time. For each server:
// - the incomplete push that has space there, and the time since which it is incomplete;
// - whether other members wait for that space;
// - whether the server makes pushes of the member wait until other members have finished.
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

// If a server makes the member's pushes wait and the member has no space there, this time does not
// count. `since` and `space_kept_since` are then moved forward by it.
class MemberPushes {
 public:
  struct Unfinished {
    int shard = 0;
    uint32_t bucket = 0;
    // Maximum of the numbers of bytes that the calls for this push have delivered. If a call is
    // cut, the push begins again, but this maximum stays.
    int64_t received_bytes = 0;
    int64_t total_bytes = 0;
    absl::Time since;          // time of the first report of this push, over all its calls
    bool others_wait = false;  // true means that other members wait for its space
    // Time since which other members wait for the space that the member occupies at this server.
    // Counts only space for the member's present work. Infinite future means that none has waited.
    absl::Time space_kept_since = absl::InfiniteFuture();
    // Time since which this server has received no byte of the member's pushes, although it was
    // reading. Infinite future means that bytes of one of the pushes arrive.
    absl::Time silent_since = absl::InfiniteFuture();
    absl::Time told_at;  // time of the server's last report
  };

  // Records a report of the server of `shard`, which replaces its previous report. `member` is the
  // member that this object is about.
  void OnSpace(int shard, const sync::PushSpace& space, const sync::Pusher& member, absl::Time now);
  // Records that the member has new work. A later push of the same bucket is then a new push, and
  // no repetition.
  void OnGrant();

  // Returns the unfinished pushes, ascending by shard.
  std::vector<Unfinished> unfinished() const;
  bool is_held() const;
  // Returns the last time at which a server reported that it makes the member's pushes wait.
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
    // A push of the previous work that was incomplete in the last report before the member got new
    // work. It may have been completed after that report.
    std::optional<Place> former = {};
  };

  std::map<int, Shard> shards_;  // shards that have reported pushes of the member
  absl::Time held_at_ = absl::InfinitePast();
};

}  // namespace lodestar::stragglers
