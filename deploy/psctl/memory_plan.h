// What a job takes of memory: on a server, on its disk, and on workers of each kind. Computed by
// what servers and workers check before they start, with nothing allocated and nothing running.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job_spec.h"
#include "common/json.h"
#include "common/layout.h"
#include "common/shard_memory.h"

namespace lodestar {

// Of cards, or of machines that compute on the CPU.
inline constexpr int64_t kPlannedGigabytes[] = {16, 24, 40, 80, 140};

// A worker on a kind of device, with flags that change what it takes.
struct WorkerMemory {
  std::string device;            // "cpu", "card"
  std::string dtype;             // as --dtype
  std::string recompute;         // as --recompute
  int64_t fixed_bytes = 0;       // with any micro-batch: parameters, gradients, workspaces, runner
  int64_t bytes_per_sample = 0;  // of a micro-batch
  int64_t pinned_bytes = 0;      // main memory beside a card, with micro-batches of 1
  std::vector<int64_t> largest_batches;  // by kPlannedGigabytes; 0: not even one sample fits
};

struct MemoryPlan {
  int num_servers = 1;
  bool has_local_steps = false;       // workers keep what these need
  ShardMemory server;                 // of the largest shard
  int64_t checkpoint_bytes = 0;       // of all servers together
  std::vector<WorkerMemory> workers;  // empty: a client computes the model
};

// Errors: those of PlanShards() and EstimateModelMemory().
absl::StatusOr<MemoryPlan> PlanMemory(const JobSpec& job, const Layout& layout, int num_servers);

// Whether a card of kPlannedGigabytes holds a worker in some way, or a client computes.
bool FitsAPlannedCard(const MemoryPlan& plan);

// For people, in lines that fit so many columns.
std::string MemoryText(const MemoryPlan& plan, int columns);
Json MemoryJson(const MemoryPlan& plan);

}  // namespace lodestar
