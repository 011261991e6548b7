// SPDX-License-Identifier: Apache-2.0

// Simulation runs a whole cluster, and sites that are workers of it, with the real coordinator,
// shards, checkpoint code and worker life cycle. Events happen one after the other, under a virtual
// clock, over a network and disks that fail, in processes that crash, freeze and restart. The seed
// decides everything: the same seed gives the same run, to the bit.
//
// A run has storms, in which faults come at any moment, with lulls between them. At the end comes a
// calm, in which nothing is broken any more and the job has to end. Audit checks what must hold all
// the time. In the calm, the cluster must make progress, and the job must end with every process in
// order.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "tests/simulation/world.h"

namespace lodestar::simulation {

struct SimulationOptions {
  uint64_t seed = 1;
  int64_t num_rounds = 200;
  // Called with each line about what happens. Null means that nothing is reported.
  World::Story story = nullptr;
};

struct SimulationResult {
  std::string violation;  // empty if no rule was violated
  std::string scenario;
  int64_t rounds = 0;  // committed rounds, including those that were lost again
  int64_t contributions = 0;
  int64_t restores = 0;
  int64_t resumes = 0;  // number of coordinators that continued from their journals
  int64_t sites = 0;    // number of sites in the cluster
  int64_t site_rounds = 0;
  int64_t faults = 0;
  int64_t events = 0;
  absl::Duration time;       // virtual time
  uint64_t fingerprint = 0;  // differs if anything in the run differed
};

SimulationResult Simulate(const SimulationOptions& options);

}  // namespace lodestar::simulation
