// How many bytes the rounds of a job move: what the wire formats, the buckets and the fragments
// make of the model's parameters. Pure; the servers move exactly these.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "common/params/layout.h"

namespace lodestar {

// The sizes of what one worker exchanges in one round, over all servers.
struct RoundSizes {
  int64_t elements = 0;
  int64_t buckets = 0;
  // Payloads in the encodings of the job, without headers.
  int64_t push_bytes = 0;
  int64_t pull_bytes = 0;
};

struct ExchangeSizes {
  int num_servers = 1;
  int num_blocks = 0;
  int64_t num_elements = 0;        // of the model
  std::vector<RoundSizes> rounds;  // of a cycle: one for each fragment, in turn; at least one

  // Over the rounds of a cycle.
  RoundSizes Total() const;
};

// Plans the sizes by the encodings, the bucket_bytes and the fragments of `job`. Tensors that are
// averaged travel in fp32. Errors: those of PlanShards(), PlanBuckets() and
// FragmentPlan::CheckComplete().
absl::StatusOr<ExchangeSizes> PlanExchangeSizes(const JobSpec& job, const Layout& layout,
                                                int num_servers);

}  // namespace lodestar
