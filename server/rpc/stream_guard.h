// Who may begin a bulk stream, and in whose name.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "server/rpc/life_secret.h"
#include "server/rpc/stream_quota.h"
#include "server/shard/parameter_shard.h"

namespace lodestar {

struct StreamGuard {
  std::shared_ptr<StreamQuota> quota;
  // Reads of worker 0, which see weights whoever is a member, are the coordinator's own, for an
  // export: they show this number, which the server has told nobody else. 0: there are none.
  uint64_t export_key = 0;
  absl::StatusOr<LifeClaim> claim;  // of the caller of this stream

  // Whether the caller may speak for this life. Errors: those of LifeClaim; Aborted if the life is
  // over, as after servers that had another key.
  absl::Status CheckLife(const ParameterShard& shard, const WorkerLife& life) const {
    if (!claim.ok()) return claim.status();
    absl::Status claimed = claim->Check(shard.life_key(), life);
    if (claimed.ok()) return claimed;
    return shard.RefusalFor(life.worker, life.incarnation, std::move(claimed));
  }
};

}  // namespace lodestar
