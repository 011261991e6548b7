// SPDX-License-Identifier: Apache-2.0

// PushSpace says which pushes have space in a shard, and which workers wait for space. The
// coordinator uses it to decide which worker delays others. It is plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/runtime/ids.h"

namespace lodestar::sync {

// An incarnation of a worker that pushes.
struct Pusher {
  WorkerId worker;
  Incarnation incarnation;
  friend auto operator<=>(const Pusher&, const Pusher&) = default;
};

// A push that has space and is incomplete.
struct UnfinishedPush {
  Pusher pusher;
  Round round;
  uint32_t bucket = 0;
  int64_t received_bytes = 0;
  int64_t total_bytes = 0;
  // How long the client has sent nothing for any of its incomplete pushes, although the server was
  // reading. 0 means that at least one of them makes progress.
  absl::Duration silence = absl::ZeroDuration();
  friend bool operator==(const UnfinishedPush&, const UnfinishedPush&) = default;
};

struct PushSpace {
  // Incomplete pushes, ascending by pusher. If a pusher has several, only the one with the smallest
  // received share is listed.
  std::vector<UnfinishedPush> unfinished;
  // Pushers that wait because another worker has space and has not finished its push. In ascending
  // order.
  std::vector<Pusher> held;
  friend bool operator==(const PushSpace&, const PushSpace&) = default;
};

// Returns the PushSpace of a shard. `unfinished` has all incomplete pushes, and `waiting` the
// pushers that wait for space, in any order.
PushSpace PushSpaceOf(absl::Span<const UnfinishedPush> unfinished,
                      absl::Span<const Pusher> waiting);

}  // namespace lodestar::sync
