// SPDX-License-Identifier: Apache-2.0

// A shard writes its rounds and steps to a ShardJournal. From a checkpoint and this journal, the
// next process computes weights with the same bits, and counts no contribution twice.
//
// The journal has the rounds that were opened after the checkpoint, and the steps of the buckets. A
// step is stored with the contribution that it used.
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

// A StepRecord is a step of a bucket. Its payload is the contribution as it came, in the encoding
// of its key.
struct StepRecord {
  uint32_t bucket = 0;
  BucketStep step;      // its `contribution` is not used here
  ContributionKey key;  // key of the step's contribution, if the step has one
};

// A ShadowRecord has the shadow of a bucket at that version: the weights as workers know them if
// weights travel as encoded changes. Checkpoints do not have the shadow. The payload is the shadow
// in fp32.
struct ShadowRecord {
  uint32_t bucket = 0;
  Version version;
};

// A NormRecord is the total of the sums of squares of all shards, if updates wait for that total.
// It is written before the first bucket is updated with it.
struct NormRecord {
  Round round;
  double total_square_sum = 0.0;
};

using ShardRecord = std::variant<sync::RoundPlan, StepRecord, ShadowRecord, NormRecord>;

class ShardJournal {
 public:
  virtual ~ShardJournal() = default;
  // Appends a record. Returns at once. `durable` is called, from any thread and without a lock,
  // once this record, its payload and all earlier ones are on disk. The calls come in the order of
  // the appends. The payload must not change until then. Thread-safe.
  virtual void Append(ShardRecord record, absl::Span<const std::byte> payload,
                      std::shared_ptr<const void> payload_owner, std::function<void()> durable) = 0;
};

}  // namespace lodestar::shard
