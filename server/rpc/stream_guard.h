// SPDX-License-Identifier: Apache-2.0

// A StreamGuard decides which caller may begin a bulk stream, in whose name, and for how long the
// stream may wait for its client.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/runtime/clock.h"
#include "server/limits/origin_places.h"
#include "server/limits/refusal_counts.h"
#include "server/rpc/late_refusal.h"
#include "server/rpc/life_secret.h"
#include "server/rpc/stream_quota.h"
#include "server/rpc/stream_watch.h"
#include "server/shard/parameter_shard.h"

namespace lodestar::rpc {

struct StreamGuard {
  std::shared_ptr<StreamQuota> quota;
  std::shared_ptr<StreamWatch> watch;
  std::shared_ptr<limits::RefusalCounts> refusals;
  // Key of the coordinator's reads for an export. A read with this key is allowed as worker 0, even
  // if there are no members. Only the coordinator knows the key. 0 means that such reads are not
  // allowed.
  uint64_t export_key = 0;
  absl::StatusOr<LifeClaim> claim;  // claim of the caller of this stream
  // Places for streams whose caller is not known as a member. A push stream takes a place when it
  // begins, because it has not named its worker yet. One origin cannot take all places.
  std::shared_ptr<limits::OriginPlaces> strangers;
  std::string origin;  // origin of the caller, see PeerOrigin()
  absl::Duration refusal_pause = kRefusalPause;
  Clock* clock = &Clock::Real();
  // Returns the number of bytes that have arrived on the caller's connection, also for other calls.
  // A null function or a result without value means that the number is not known. Thread-safe.
  std::function<std::optional<uint64_t>()> connection_bytes = nullptr;
  // Called with each incarnation that the caller may speak for. Thread-safe.
  std::function<void(const messages::WorkerLife&)> on_life = [](const messages::WorkerLife&) {};

  // Takes one of the places in `strangers`. Errors: ResourceExhausted, which is counted.
  absl::StatusOr<limits::OriginPlaces::Place> TakeStrangersPlace() const {
    limits::OriginPlaces::Place place = strangers->Take(origin);
    if (place != nullptr) return place;
    refusals->Count(limits::LimitReached::kStreams);
    return absl::ResourceExhaustedError(
        "too many pushes and pulls from this address are open by workers that the coordinator has "
        "not announced to this server yet; try again later");
  }
  // Checks that the caller may speak for this incarnation. Errors: those of LifeClaim; Aborted (the
  // incarnation is over, for example because earlier servers had another key).
  absl::Status CheckLife(const shard::ParameterShard& shard,
                         const messages::WorkerLife& life) const {
    if (!claim.ok()) return claim.status();
    absl::Status claimed = claim->Check(shard.life_key(), life);
    if (claimed.ok()) {
      on_life(life);
      return claimed;
    }
    return shard.RefusalFor(life.worker, life.incarnation, std::move(claimed));
  }
};

}  // namespace lodestar::rpc
