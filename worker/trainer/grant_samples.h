// Turns a grant into samples in memory. Positions in the order of the worker's data set become
// training samples. Parts of the evaluation set become held-out samples.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "worker/data/dataset.h"
#include "worker/data/sample_order.h"

namespace lodestar::trainer {

// The samples of one local step: positions [first, first + count) in the order of the data set, a
// contiguous part of the grant.
struct SampleSpan {
  int64_t first = 0;
  int64_t count = 0;
  int64_t first_position = 0;  // The position of `first` among all samples of the job.
};

// Checks that `grant` can be meant for a worker of `job` with `dataset`. The samples must be those
// of the job's steps, and there must be held-out samples to evaluate. A grant that passes can be
// computed with without overflow, and no step of it holds more samples than the job's. Errors:
// FailedPrecondition.
absl::Status CheckGrant(const Grant& grant, const JobSpec& job, const data::Dataset& dataset);

// Returns the part of `grant` for local step `step` in [0, grant.local_steps).
SampleSpan SamplesOfStep(const Grant& grant, int step);

// Reads the training samples at the positions of `span`.
absl::Status ReadTrainSpan(const data::Dataset& dataset, const data::SampleOrder& order,
                           SampleSpan span, data::HostBatch* batch);

// Returns the held-out sample of place `k` in an evaluation set of n places. The places are spread
// evenly, and each sample is there at most once if n <= num_heldout.
int64_t HeldoutSampleAt(int64_t k, int64_t n, int64_t num_heldout);

}  // namespace lodestar::trainer
