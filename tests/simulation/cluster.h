// SPDX-License-Identifier: Apache-2.0

// SimulatedCluster holds the servers of a job, their workers, their disk with its faults, and the
// audit of all these. It is the cluster of a run, or a site. A site is one worker of the run's
// cluster, through its uplink.
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

// The members are public for the code that causes faults.
struct SimulatedCluster {
  // Pointers are not owned. Their objects and the scenario must outlive the cluster.
  struct Deps {
    World* world = nullptr;
    Network* network = nullptr;
    Chance* chance = nullptr;              // decides about faults
    SimulatedCluster* upstream = nullptr;  // cluster above; null means no site
  };

  // `name` is the name of a site, and empty for the cluster of the run. `replica_seed` is the seed
  // of the replica's random events.
  SimulatedCluster(const Deps& deps, const ClusterScenario& the_scenario, const std::string& name,
                   uint64_t replica_seed);
  SimulatedCluster(const SimulatedCluster&) = delete;
  SimulatedCluster& operator=(const SimulatedCluster&) = delete;

  bool is_site() const { return uplink != nullptr; }
  const coordinator::CoordinatorConfig& config() const { return scenario.coordinator; }
  // Returns null if the coordinator's process is not there.
  coordinator::Coordinator* coordinator() { return servers[0]->coordinator(); }
  // Returns false for the old worker, which the servers refuse.
  bool CanTakePart(const SimulatedWorker& worker) const {
    return &worker != workers.back().get() || !scenario.has_old_worker;
  }
  bool AnyHangs() const;
  // Returns true if this is a site that lacks workers. Its uplink is then a worker that hangs.
  bool AwaitsMembers() const;

  const ClusterScenario& scenario;
  World* const world;
  SimulatedFileSystem disk;
  std::unique_ptr<SimulatedReplica> replica;  // null means that there is no replica
  Audit audit;
  ClusterContext context;
  DiskFaults disk_faults;
  std::unique_ptr<SimulatedUplink> uplink;
  std::vector<std::unique_ptr<SimulatedServer>> servers;
  std::vector<std::unique_ptr<SimulatedServer>> replaced;  // servers whose folders others have
  std::vector<std::unique_ptr<SimulatedWorker>> workers;
  const int num_workers;  // number of workers that can take part; the old worker comes after them
};

}  // namespace lodestar::simulation
