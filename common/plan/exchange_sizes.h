// SPDX-License-Identifier: Apache-2.0

// Computes how many bytes the rounds of a job move, from the wire formats, the buckets and the
// fragments of the model. Pure. The servers move exactly these bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "common/params/layout.h"

namespace lodestar::plan {

// What one worker exchanges with all servers in one round.
struct RoundSizes {
  int64_t elements = 0;
  int64_t buckets = 0;
  // Payloads in the job's encodings, without headers.
  int64_t push_bytes = 0;
  int64_t pull_bytes = 0;
};

struct ExchangeSizes {
  int num_servers = 1;
  int num_blocks = 0;
  int64_t num_elements = 0;        // elements of the model
  std::vector<RoundSizes> rounds;  // the rounds of a cycle, one per fragment, at least one

  // Returns the sum over the rounds of a cycle.
  RoundSizes Total() const;
};

// Computes the sizes from the encodings, the bucket_bytes and the fragments of `job`. Averaged
// tensors are sent in fp32. Errors: those of PlanShards(), PlanBuckets() and
// FragmentPlan::CheckComplete().
absl::StatusOr<ExchangeSizes> PlanExchangeSizes(const job::JobSpec& job,
                                                const params::Layout& layout, int num_servers);

}  // namespace lodestar::plan
