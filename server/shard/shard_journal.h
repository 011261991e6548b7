// ShardJournal is what a shard writes down of what it does. So a process that comes after it has
// the same weights, to the bit, and counts nothing twice. It has, beyond the checkpoint that it
// continues, the rounds that were opened and the steps that buckets have taken, each with the
// numbers that it took.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <variant>

#include "absl/types/span.h"
#include "common/runtime/ids.h"
#include "server/shard/bucket_protocol.h"
#include "server/shard/contribution.h"
#include "server/sync/round_plan.h"

namespace lodestar::shard {

// A step of a bucket. Its payload is the contribution as it came, in the encoding of its key.
struct StepRecord {
  uint32_t bucket = 0;
  BucketStep step;      // its `contribution` means nothing here
  ContributionKey key;  // of the contribution, where the step has one
};

// A ShadowRecord is what workers have of a bucket at that version, where weights travel as encoded
// changes: no checkpoint has it. The payload is the shadow in fp32.
struct ShadowRecord {
  uint32_t bucket = 0;
  Version version;
};

// A NormRecord is what the sums of squares of all shards make together, where updates wait for it.
// It is written before the first bucket is updated with it.
struct NormRecord {
  Round round;
  double total_square_sum = 0.0;
};

using ShardRecord = std::variant<RoundPlan, StepRecord, ShadowRecord, NormRecord>;

class ShardJournal {
 public:
  virtual ~ShardJournal() = default;
  // Returns at once. `durable` is called once record and payload, which stays as it is, and all
  // appended before are on disk: in the order of the appends, from any thread, without a lock.
  // Thread-safe.
  virtual void Append(ShardRecord record, absl::Span<const std::byte> payload,
                      std::shared_ptr<const void> payload_owner, std::function<void()> durable) = 0;
};

}  // namespace lodestar::shard
