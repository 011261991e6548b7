// SPDX-License-Identifier: Apache-2.0

// ShardState is everything that a shard must remember over a restart. Its pages are shared with the
// shard, not copied. While a ShardState exists, the shard does not change these pages: it writes to
// other pages.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/params/layout.h"
#include "common/runtime/ids.h"
#include "server/shard/delayed_step.h"
#include "server/shard/norm_watch.h"
#include "server/shard/page.h"
#include "server/sync/bucket_policy.h"

namespace lodestar::shard {

// A CountedWorker is one row of a bucket's dedup table.
struct CountedWorker {
  WorkerId worker;
  sync::CountedContribution last;
  friend bool operator==(const CountedWorker&, const CountedWorker&) = default;
};

struct BucketState {
  params::ElementRange range;  // elements of the parameter space
  Version version;
  std::shared_ptr<const Page> weights;
  std::vector<std::shared_ptr<const Page>> optimizer_state;  // one page per ShardState::state_names
  std::vector<CountedWorker> counted;                        // ascending by worker
  // Usual norm of a contribution: see NormWatch.
  UsualNorm usual_norm;
  // State of the optimizer step that has begun and lacks contributions, if there is one.
  DelayedStep::Memory delayed;
};

struct ShardState {
  params::ElementRange range;
  std::vector<std::string> state_names;
  std::vector<BucketState> buckets;  // in order, covering `range` exactly
};

}  // namespace lodestar::shard
