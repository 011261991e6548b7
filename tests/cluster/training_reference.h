// SPDX-License-Identifier: Apache-2.0

// Computes what workers should arrive at: the same model, samples and update rule in one plain loop
// over one flat vector, without servers, rounds, buckets or wire.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"

namespace lodestar {

// Returns the weights that the job starts from.
absl::StatusOr<std::vector<float>> InitialWeights(const job::JobSpec& job);

// Trains with one optimizer step per batch_size samples, total_rounds * local_steps steps in all.
// clip_norm clips the gradient of each step. Outer optimizers are not used.
absl::StatusOr<std::vector<float>> TrainSequentially(const job::JobSpec& job,
                                                     const std::string& data);

// Returns the servers' weights after elastic averaging (Zhang et al. 2015, arXiv:1412.6651,
// equations 3 to 6). In each round except the last, every worker makes local_steps steps on its own
// weights. Then worker and servers move towards each other, with alpha = outer_learning_rate /
// num_workers.
absl::StatusOr<std::vector<float>> TrainElastically(const job::JobSpec& job,
                                                    const std::string& data, int num_workers);

// Returns |a - b| / |b|. Both have the same number of elements.
double RelativeDistance(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace lodestar
