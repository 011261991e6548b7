// Who may begin a bulk stream.
#pragma once

#include <cstdint>
#include <memory>

#include "server/rpc/stream_quota.h"

namespace lodestar {

struct StreamGuard {
  std::shared_ptr<StreamQuota> quota;
  // Reads of worker 0, which see weights whoever is a member, are the coordinator's own, for an
  // export: they show this number, which the server has told nobody else. 0: there are none.
  uint64_t export_key = 0;
};

}  // namespace lodestar
