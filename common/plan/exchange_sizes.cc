// SPDX-License-Identifier: Apache-2.0

#include "common/plan/exchange_sizes.h"

#include "common/job/fragment_plan.h"
#include "common/params/bucket_plan.h"
#include "common/params/encoding.h"
#include "common/params/shard_plan.h"
#include "common/runtime/status_macros.h"

namespace lodestar::plan {

RoundSizes ExchangeSizes::Total() const {
  RoundSizes total;
  for (const RoundSizes& round : rounds) {
    total.elements += round.elements;
    total.buckets += round.buckets;
    total.push_bytes += round.push_bytes;
    total.pull_bytes += round.pull_bytes;
  }
  return total;
}

absl::StatusOr<ExchangeSizes> PlanExchangeSizes(const job::JobSpec& job,
                                                const params::Layout& layout, int num_servers) {
  ASSIGN_OR_RETURN(const std::vector<params::ElementRange> shards,
                   params::PlanShards(layout, num_servers));
  ASSIGN_OR_RETURN(const std::vector<params::Bucket> buckets,
                   params::PlanBuckets(layout, shards, job.bucket_bytes));
  const job::FragmentPlan fragments(buckets, job.fragments);
  RETURN_IF_ERROR(fragments.CheckComplete());
  ExchangeSizes sizes = {.num_servers = num_servers,
                         .num_blocks = layout.num_blocks(),
                         .num_elements = layout.num_elements(),
                         .rounds = std::vector<RoundSizes>(job.fragments)};
  for (size_t i = 0; i < buckets.size(); ++i) {
    const params::Bucket& bucket = buckets[i];
    const bool is_averaged = layout.is_averaged(bucket.block);
    RoundSizes& round = sizes.rounds[fragments.TurnOf(static_cast<int64_t>(i)).fragment];
    const int64_t elements = bucket.range.size();
    round.elements += elements;
    ++round.buckets;
    round.push_bytes +=
        params::EncodedBytes(is_averaged ? params::Encoding::kFp32 : job.push_encoding, elements);
    round.pull_bytes +=
        params::EncodedBytes(is_averaged ? params::Encoding::kFp32 : job.pull_encoding, elements);
  }
  return sizes;
}

}  // namespace lodestar::plan
