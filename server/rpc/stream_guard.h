// A StreamGuard decides which caller may begin a bulk stream, in whose name, and for how long the
// stream may stand still.
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
  // A read of worker 0 sees weights even if no worker is a member. Such reads are the coordinator's
  // own, for an export: they show this number, which the server has told no other program. 0 means
  // that there are no such reads.
  uint64_t export_key = 0;
  absl::StatusOr<LifeClaim> claim;  // of the caller of this stream
  // These places are for streams whose caller is no member, or has not named its worker. No stream
  // that begins to push has named one. A caller that opens very many leaves some to callers from
  // elsewhere.
  std::shared_ptr<limits::OriginPlaces> strangers;
  std::string origin;  // of the caller, see PeerOrigin()
  absl::Duration refusal_pause = kRefusalPause;
  Clock* clock = &Clock::Real();
  // Returns how many bytes have come on the caller's connection, whatever they were for. Null, or
  // no number, means that it cannot be told. Thread-safe.
  std::function<std::optional<uint64_t>()> connection_bytes = nullptr;
  // Told of each life that the caller may speak for. Thread-safe.
  std::function<void(const WorkerLife&)> on_life = [](const WorkerLife&) {};

  // Errors: ResourceExhausted, which is counted.
  absl::StatusOr<limits::OriginPlaces::Place> TakeStrangersPlace() const {
    limits::OriginPlaces::Place place = strangers->Take(origin);
    if (place != nullptr) return place;
    refusals->Count(limits::LimitReached::kStreams);
    return absl::ResourceExhaustedError(
        "too many pushes and pulls are open from this address of callers that are not announced to "
        "this server; try again later");
  }
  // Whether the caller may speak for this life. Errors: those of LifeClaim; Aborted if the life is
  // over, as after servers that had another key.
  absl::Status CheckLife(const shard::ParameterShard& shard, const WorkerLife& life) const {
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
