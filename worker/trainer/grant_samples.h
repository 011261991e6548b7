// SPDX-License-Identifier: Apache-2.0

// Finds the samples of a grant. A position in the order of the worker's data set gives a training
// sample. An index into the evaluation set gives a held-out sample.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "worker/data/dataset.h"
#include "worker/data/sample_order.h"

namespace lodestar::trainer {

// The samples of one local step, as positions [first, first + count) in the order of the data set.
// They are a contiguous part of the grant.
struct SampleSpan {
  int64_t first = 0;
  int64_t count = 0;
  int64_t first_position = 0;  // The position of `first` among all samples of the job.
};

// Checks that `grant` fits the job and the data set:
// - The numbers of steps and samples are in the range that the job allows. So later computations
//   with them do not overflow.
// - If held-out samples are granted, the data set has held-out samples.
// Errors: FailedPrecondition.
absl::Status CheckGrant(const messages::Grant& grant, const job::JobSpec& job,
                        const data::Dataset& dataset);

// Returns the samples of `grant` for local step `step`. Requires: 0 <= step < grant.local_steps.
SampleSpan SamplesOfStep(const messages::Grant& grant, int step);

// Reads the training samples at the positions of `span`.
absl::Status ReadTrainSpan(const data::Dataset& dataset, const data::SampleOrder& order,
                           SampleSpan span, data::HostBatch* batch);

// Returns the held-out sample with index `k` in an evaluation set of `n` samples. The evaluation
// set is spread evenly over the held-out samples. If n <= num_heldout, it has no sample twice.
int64_t HeldoutSampleAt(int64_t k, int64_t n, int64_t num_heldout);

}  // namespace lodestar::trainer
