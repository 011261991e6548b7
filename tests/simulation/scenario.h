// SPDX-License-Identifier: Apache-2.0

// Scenario is what a seed gives: the job, its servers and workers, and how often and how badly
// things fail.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/params/encoding.h"
#include "server/coordinator/coordinator_config.h"
#include "tests/simulation/chance.h"

namespace lodestar::simulation {

// The scenario of one cluster: the cluster of the run, or a site.
struct ClusterScenario {
  coordinator::CoordinatorConfig coordinator;
  int keep = 3;              // number of checkpoints that are kept
  bool journals = false;     // servers write down what they acknowledge
  bool has_replica = false;  // there is a replica of the journals
  bool replica_has_checkpoints = false;
  bool goes_back = false;           // Journals are sometimes put back to an older state.
  int num_workers = 1;              // workers that know the job's encodings, without sites
  bool has_old_worker = false;      // there is one more worker, which is refused
  bool speaks_old_wire = false;     // it has an older wire version; else it lacks encodings
  bool has_foreign_worker = false;  // one of num_workers is a client of another make
  absl::Duration longest_step;      // maximum time of computing
  // Workers get more samples for a step, or make steps without samples.
  bool extends_grants = false;
  bool gives_weights = false;   // contributions have weights of their own
  bool has_odd_worker = false;  // one of num_workers begins with the opposite of gives_weights
};

struct Scenario : ClusterScenario {
  std::vector<ClusterScenario> sites;  // each site is one more worker
  absl::Duration longest_delay;        // maximum delay of the network
  absl::Duration fault_pause;          // mean time between two faults
  bool is_stormy_to_the_end = false;   // false means that the last quarter of the job is calm
  std::string text;                    // describes the scenario in words
};

Scenario MakeScenario(uint64_t seed, int64_t num_rounds);

}  // namespace lodestar::simulation
