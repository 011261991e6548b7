// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/cluster.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lodestar::simulation {
namespace {

Audit::Story StoryOf(World* world, const std::string& prefix) {
  if (!world->has_listener()) return nullptr;
  return [world, prefix](const std::string& line) { world->Tell(prefix, line); };
}

}  // namespace

SimulatedCluster::SimulatedCluster(const Deps& deps, const ClusterScenario& the_scenario,
                                   const std::string& name, uint64_t replica_seed)
    : scenario(the_scenario),
      world(deps.world),
      audit(config().job, /*is_site=*/deps.upstream != nullptr, scenario.extends_grants,
            StoryOf(deps.world, name.empty() ? "" : absl::StrCat(name, "'s "))),
      disk_faults(deps.world, deps.chance, &disk, config().checkpoint_dir,
                  [this] { return context.is_draining; }),
      num_workers(scenario.num_workers) {
  context.world = deps.world;
  context.network = deps.network;
  context.audit = &audit;
  context.disk = &disk;
  context.coordinator = config();
  context.keep = scenario.keep;
  context.journals = scenario.journals;
  if (scenario.has_replica) {
    replica = std::make_unique<SimulatedReplica>(
        world, "/journal", scenario.replica_has_checkpoints ? config().checkpoint_dir : "",
        replica_seed);
    context.replica = replica.get();
  }
  for (int shard = 0; shard < config().num_shards; ++shard) {
    servers.push_back(std::make_unique<SimulatedServer>(
        &context, shard, name.empty() ? absl::StrCat("server ", shard) : name));
    context.servers.push_back(servers.back().get());
  }
  const std::string prefix = name.empty() ? "" : absl::StrCat(name, "-");
  for (int i = 0; i < num_workers + (scenario.has_old_worker ? 1 : 0); ++i) {
    SimulatedWorker::Config worker;
    worker.name = absl::StrCat(prefix, i < num_workers ? "worker-" : "old-worker-", i);
    worker.longest_step = scenario.longest_step * (i == 0 ? 3 : 1);
    worker.encodings = {params::Encoding::Kind::kFp32};
    if (i < num_workers) {
      for (const params::Encoding encoding : params::kAllEncodings)
        worker.encodings.push_back(encoding.kind());
    }
    if (i == num_workers && scenario.speaks_old_wire) --worker.wire_version;
    worker.tells_little = i == 0 && scenario.has_foreign_worker;
    worker.asks_ahead = i % 3 != 0;
    worker.extends_grants = scenario.extends_grants;
    worker.gives_weights = scenario.gives_weights;
    worker.is_odd = scenario.has_odd_worker && i == 0;
    workers.push_back(std::make_unique<SimulatedWorker>(&context, worker));
  }
  if (deps.upstream == nullptr) return;
  SimulatedWorker::Config worker;
  worker.name = name;
  for (const params::Encoding encoding : params::kAllEncodings)
    worker.encodings.push_back(encoding.kind());
  worker.asks_ahead = true;
  worker.leave_timeout = config().stop_timeout;
  uplink = std::make_unique<SimulatedUplink>(&deps.upstream->context, worker,
                                             &servers[0]->process(), &audit);
  context.uplink = uplink.get();
}

bool SimulatedCluster::AnyHangs() const {
  return std::any_of(workers.begin(), workers.end(),
                     [](const auto& worker) { return worker->is_hanging(); });
}

bool SimulatedCluster::AwaitsMembers() const {
  if (!is_site()) return false;
  const coordinator::Coordinator* const coordinator = servers[0]->coordinator();
  return coordinator != nullptr && !coordinator->SiteData(world->Now()).has_value();
}

}  // namespace lodestar::simulation
