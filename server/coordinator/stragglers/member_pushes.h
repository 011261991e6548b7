// What the servers say of a member's pushes: which of them has space and is not whole, since when,
// and whether others wait for that space; and whether a server holds what the member pushes until
// others have finished. Pure: signs of life of servers and the time go in.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/runtime/ids.h"
#include "server/sync/push_space.h"

namespace lodestar {

// Time for which a server holds what the member pushes, which then has no space there, does not
// count: both times that are told begin that much later.
class MemberPushes {
 public:
  struct Unfinished {
    int shard = 0;
    uint32_t bucket = 0;
    // The most that has come of it: a call that is cut is begun anew, and costs nothing.
    int64_t received_bytes = 0;
    int64_t total_bytes = 0;
    absl::Time since;          // that it was heard of first, whatever calls there were
    bool others_wait = false;  // for its space
    // Since when others have waited for space of this server that the member has had for its work.
    // Infinite future means that none has waited.
    absl::Time space_kept_since = absl::InfiniteFuture();
    // Since when nothing has come of any of the member's pushes to this server, which was reading.
    // Infinite future means that one of them moves.
    absl::Time silent_since = absl::InfiniteFuture();
    absl::Time told_at;  // when the server has said all this
  };

  // A sign of life of a shard's server, in the place of the one before; `member` is this one.
  void OnSpace(int shard, const PushSpace& space, const Pusher& member, absl::Time now);
  // The member has new work: what it pushes from here on is no part of what it has pushed before.
  void OnGrant();

  // Returns the unfinished pushes by shard.
  std::vector<Unfinished> unfinished() const;
  bool is_held() const;
  // When a server said last that it holds what the member pushes.
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
    // The push of the work before that was not whole as of the last sign of life before the new
    // work was given. It may have been whole by the time the new work was given.
    std::optional<Place> former = {};
  };

  std::map<int, Shard> shards_;  // those that have told of the member
  absl::Time held_at_ = absl::InfinitePast();
};

}  // namespace lodestar
