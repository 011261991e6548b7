// What all buckets of a shard share. Every member is thread-safe or never changes.
#pragma once

#include <memory>

#include "common/executor.h"
#include "common/job_spec.h"
#include "common/layout.h"
#include "common/trace_recorder.h"
#include "server/optimizer/optimizer.h"
#include "server/shard/page.h"
#include "server/shard/round_norm.h"
#include "server/shard/shard_counters.h"
#include "server/shard/shard_observer.h"
#include "server/shard/shard_roster.h"
#include "server/shard/staging_pool.h"
#include "server/sync/bucket_policy.h"

namespace lodestar {

struct ShardContext {
  const JobSpec job;
  const Layout layout;
  const std::unique_ptr<const BucketPolicy> policy;
  const std::unique_ptr<const Optimizer> optimizer;
  const std::shared_ptr<PagePool> pages;
  const std::shared_ptr<StagingPool> staging;
  const std::unique_ptr<RoundNorm> norm;  // null: updates do not wait for a norm
  Executor* const executor;
  TraceRecorder* const trace;  // null: no trace
  ShardCounters counters;
  ShardRoster roster;
  // Set once, before there are buckets.
  std::shared_ptr<ShardObserver> observer = std::make_shared<ShardObserver>();
};

}  // namespace lodestar
