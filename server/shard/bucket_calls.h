// Calls that wait at a bucket for an answer.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "server/shard/contribution.h"
#include "server/shard/pending_call.h"
#include "server/shard/published_bucket.h"
#include "server/shard/shard_state.h"
#include "server/shard/staged_bucket.h"
#include "server/shard/staging_pool.h"

namespace lodestar {

// A contribution that waits for permission to arrive.
struct WaitingPush {
  ContributionKey key;
  std::function<void(absl::StatusOr<StagedBucket>)> ready;
  std::shared_ptr<CallTicket> ticket;
  std::shared_ptr<StagingPool::Request> request;  // null: not in the pool's queue
};

struct WaitingRead {
  WorkerId worker;
  Incarnation incarnation;
  Version min_version;
  ReadView view;
  std::function<void(absl::StatusOr<PublishedBucket>)> done;
  std::shared_ptr<CallTicket> ticket;
};

struct WaitingCapture {
  std::optional<Version> version;
  std::function<void(absl::StatusOr<BucketState>)> done;
};

}  // namespace lodestar
