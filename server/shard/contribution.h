// What a worker pushes, as the shard sees it.
#pragma once

#include <cstdint>

#include "common/contribution.h"  // ContributionKind, shared with the worker: //common:contribution
#include "common/encoding.h"
#include "common/ids.h"

namespace lodestar {

// Names one contribution of one worker to one round; together with the bucket it is counted once.
struct ContributionKey {
  WorkerId worker;
  Incarnation incarnation;
  Round round;           // of the grant
  Version base_version;  // that the contribution was computed on
  ContributionKind kind = ContributionKind::kGradient;
  float scale = 1.0f;  // the elements are multiplied by it; for clients that clip
  Encoding encoding = Encoding::kFp32;
  int64_t num_samples = 0;  // that it was computed on; 0: all of the grant's
};

enum class PushOutcome : uint8_t {
  kCounted,
  kDuplicate,  // counted before
  kLate,       // the round was committed without it; dropped
};

}  // namespace lodestar
