// Scenario: what one seed makes of a cluster: the job, its servers and workers, and how hostile the
// world is to them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/params/encoding.h"
#include "server/coordinator/coordinator_config.h"
#include "tests/simulation/chance.h"

namespace lodestar::simulation {

// The scenario of one cluster: that of the run, or a site of it.
struct ClusterScenario {
  CoordinatorConfig coordinator;
  int keep = 3;              // checkpoints
  bool journals = false;     // servers write down what they acknowledge
  bool has_replica = false;  // of the journals
  bool replica_has_checkpoints = false;
  bool goes_back = false;           // Disks with journals are put back to an older state.
  int num_workers = 1;              // that know the job's encodings; sites are none of them
  bool has_old_worker = false;      // and one that does not,
  bool speaks_old_wire = false;     // or does not speak the servers' wire version
  bool has_foreign_worker = false;  // one of num_workers is of another make
  absl::Duration longest_step;      // of computing
};

struct Scenario : ClusterScenario {
  std::vector<ClusterScenario> sites;  // each is one worker more
  absl::Duration longest_delay;        // of the network
  absl::Duration fault_pause;          // mean between two faults
  bool is_stormy_to_the_end = false;   // else the last quarter of the job is calm
  std::string text;                    // of all that, for people
};

Scenario MakeScenario(uint64_t seed, int64_t num_rounds);

}  // namespace lodestar::simulation
