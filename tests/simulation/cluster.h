// SimulatedCluster: the servers of a job with their workers, their disk and what can be wrong with
// that, and the audit of it all: the cluster of a run, or a site of it, which is with its uplink a
// worker of that.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/testing/simulated_file_system.h"
#include "tests/simulation/audit.h"
#include "tests/simulation/disk_faults.h"
#include "tests/simulation/network.h"
#include "tests/simulation/replica.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/server.h"
#include "tests/simulation/uplink.h"
#include "tests/simulation/worker.h"

namespace lodestar::simulation {

// Its parts are public for the code that has things happen to them.
struct SimulatedCluster {
  // Not owned; they and the scenario outlive the cluster.
  struct Deps {
    World* world = nullptr;
    Network* network = nullptr;
    Chance* chance = nullptr;              // of faults
    SimulatedCluster* upstream = nullptr;  // of a site
  };

  // `name` is the name of a site, and empty for the cluster of the run. `replica_seed` is the seed
  // of what happens to the replica.
  SimulatedCluster(const Deps& deps, const ClusterScenario& the_scenario, const std::string& name,
                   uint64_t replica_seed);
  SimulatedCluster(const SimulatedCluster&) = delete;
  SimulatedCluster& operator=(const SimulatedCluster&) = delete;

  bool is_site() const { return uplink != nullptr; }
  const CoordinatorConfig& config() const { return scenario.coordinator; }
  // Null if its process is not there.
  Coordinator* coordinator() { return servers[0]->coordinator(); }
  // Returns false for the old worker, which is refused.
  bool CanTakePart(const SimulatedWorker& worker) const {
    return &worker != workers.back().get() || !scenario.has_old_worker;
  }
  bool AnyHangs() const;
  // Returns true if it is a site that lacks workers, and so a worker that hangs.
  bool AwaitsMembers() const;

  const ClusterScenario& scenario;
  World* const world;
  SimulatedFileSystem disk;
  std::unique_ptr<SimulatedReplica> replica;  // null if there is none
  Audit audit;
  ClusterContext context;
  DiskFaults disk_faults;
  std::unique_ptr<SimulatedUplink> uplink;
  std::vector<std::unique_ptr<SimulatedServer>> servers;
  std::vector<std::unique_ptr<SimulatedServer>> replaced;  // by others, which have their folders
  std::vector<std::unique_ptr<SimulatedWorker>> workers;
  const int num_workers;  // that can take part; the old one comes after them
};

}  // namespace lodestar::simulation
