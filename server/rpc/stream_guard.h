// Who may begin a bulk stream, and for how long it may stand still.
#pragma once

#include <cstdint>
#include <memory>

#include "server/limits/refusal_counts.h"
#include "server/rpc/stream_quota.h"
#include "server/rpc/stream_watch.h"

namespace lodestar {

struct StreamGuard {
  std::shared_ptr<StreamQuota> quota;
  std::shared_ptr<StreamWatch> watch;
  std::shared_ptr<RefusalCounts> refusals;
  // Reads of worker 0, which see weights whoever is a member, are the coordinator's own, for an
  // export: they show this number, which the server has told nobody else. 0: there are none.
  uint64_t export_key = 0;
};

}  // namespace lodestar
