// Simulation: the real coordinator, shards, checkpoint code and worker life of a whole cluster, and
// of sites that are workers of it, one event after the other, under a virtual clock, over a network
// and disks that fail, in processes that crash, freeze and start again. A seed decides everything;
// the same seed is the same run, to the bit.
//
// A run is storms, in which faults come at any moment, with lulls between them, and at last a calm,
// in which nothing is broken any more and the job has to end. What must hold all the time: Audit.
// What must hold in the calm: the cluster makes progress, and the job ends with every process
// content.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "tests/simulation/world.h"

namespace lodestar::simulation {

struct SimulationOptions {
  uint64_t seed = 1;
  int64_t num_rounds = 200;
  // Told what happens, a line at a time. Null means that nothing is told.
  World::Story story = nullptr;
};

struct SimulationResult {
  std::string violation;  // empty if everything held
  std::string scenario;
  int64_t rounds = 0;  // committed, also those that were lost again
  int64_t contributions = 0;
  int64_t restores = 0;
  int64_t resumes = 0;  // of coordinators, from their journals
  int64_t sites = 0;    // in the cluster
  int64_t site_rounds = 0;
  int64_t faults = 0;
  int64_t events = 0;
  absl::Duration time;       // virtual
  uint64_t fingerprint = 0;  // differs if anything did
};

SimulationResult Simulate(const SimulationOptions& options);

}  // namespace lodestar::simulation
