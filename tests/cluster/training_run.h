// SPDX-License-Identifier: Apache-2.0

// Runs a whole training job in one process: real servers and real workers over loopback.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"

namespace lodestar {

struct TrainingSetup {
  job::JobSpec job;  // min_workers is filled in by RunTraining()
  std::string data;  // the --data of each worker
  int num_servers = 1;
  int num_workers = 1;
  bool own_partition = false;
  // Number of workers of each site. A site is one more worker of the servers.
  std::vector<int> sites = {};
  // If above 0, each site is below an upper site, which averages the weights of its workers after
  // this many local steps. 0 means no upper sites.
  int steps_of_upper_sites = 0;
};

// Runs the job to its end. Returns the weights in the order of the parameter space. All workers
// start at the same time, so their order at the coordinator differs from run to run. Errors: those
// of the servers and workers; the first one ends the run.
absl::StatusOr<std::vector<float>> RunTraining(const TrainingSetup& setup);

}  // namespace lodestar
