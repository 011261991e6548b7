// A whole training job in one process: real servers and real workers over loopback.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"

namespace lodestar {

struct TrainingSetup {
  JobSpec job;       // min_workers is filled in
  std::string data;  // what each worker gets as --data
  int num_servers = 1;
  int num_workers = 1;
  bool own_partition = false;
  // Workers of each site, which is one more worker of the servers.
  std::vector<int> sites = {};
  // Above 0: each of them is below another site, the mean of whose workers is taken after so many
  // local steps.
  int steps_of_upper_sites = 0;
};

// Runs the job to its end and returns the weights in order of the parameter space. All workers
// start at once, so which of them the coordinator meets first differs from run to run.
// Errors: those of the servers and workers; the first one ends the run.
absl::StatusOr<std::vector<float>> RunTraining(const TrainingSetup& setup);

}  // namespace lodestar
