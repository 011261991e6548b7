// The door of a shard: which numbers of a contribution may be counted.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "common/bucket_plan.h"
#include "common/job_spec.h"
#include "server/shard/contribution.h"

namespace lodestar {

// Whether the job takes contributions of this kind, encoding and scale. Errors: InvalidArgument.
absl::Status CheckForm(const ContributionKey& key, const Bucket& bucket, const JobSpec& job,
                       bool awaits_first_weights);

// Whether the bucket's elements, times the scale of the key, are finite and within
// kMaxContribution. Errors: Aborted, naming worker, bucket and element: begin anew from other
// weights; InvalidArgument for first weights, which nothing can mend.
absl::Status CheckNumbers(const ContributionKey& key, const Bucket& bucket,
                          const std::byte* elements);

}  // namespace lodestar
