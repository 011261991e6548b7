// What workers should arrive at: the same model, samples and update rule in one plain loop over
// one flat vector. No servers, rounds, buckets or wire.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"

namespace lodestar {

// The weights that the job starts from.
absl::StatusOr<std::vector<float>> InitialWeights(const JobSpec& job);

// One optimizer step per batch_size samples, total_rounds * local_steps of them; clip_norm clips
// each step's gradient. Outer optimizers have no part in it.
absl::StatusOr<std::vector<float>> TrainSequentially(const JobSpec& job, const std::string& data);

// The servers' weights of elastic averaging (Zhang et al. 2015, arXiv:1412.6651, equations 3 to 6):
// each round but the last every worker makes local_steps steps on its own weights, then it and the
// servers pull each other, with alpha = outer_learning_rate / num_workers.
absl::StatusOr<std::vector<float>> TrainElastically(const JobSpec& job, const std::string& data,
                                                    int num_workers);

// |a - b| / |b|; as many elements each.
double RelativeDistance(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace lodestar
