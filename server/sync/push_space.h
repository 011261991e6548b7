// What the space of a shard for contributions on their way in is taken by, and who waits for some:
// for the coordinator to decide who holds up whom. Pure data.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/runtime/ids.h"

namespace lodestar {

// A life of a worker that pushes.
struct Pusher {
  WorkerId worker;
  Incarnation incarnation;
  friend auto operator<=>(const Pusher&, const Pusher&) = default;
};

// Has space, and is not whole.
struct UnfinishedPush {
  Pusher pusher;
  Round round;
  uint32_t bucket = 0;
  int64_t received_bytes = 0;
  int64_t total_bytes = 0;
  // How long the client has sent nothing while the server was reading, of all of the pusher's
  // pushes that are not whole. 0 means that one of them moves.
  absl::Duration silence = absl::ZeroDuration();
  friend bool operator==(const UnfinishedPush&, const UnfinishedPush&) = default;
};

struct PushSpace {
  // Ascending by pusher: of each the one that the smallest part has come of.
  std::vector<UnfinishedPush> unfinished;
  // Ascending. The server holds what these push, because another worker has not finished what has
  // space.
  std::vector<Pusher> held;
  friend bool operator==(const PushSpace&, const PushSpace&) = default;
};

// Returns the space of a shard: `unfinished` are all pushes that are not whole, `waiting` those
// that wait for space, in any order.
PushSpace PushSpaceOf(absl::Span<const UnfinishedPush> unfinished,
                      absl::Span<const Pusher> waiting);

}  // namespace lodestar
