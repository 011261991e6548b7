// What a job takes of memory: on a server, on its disk, and on workers of each kind. It is computed
// by the code that servers and workers check with before they start. Nothing is allocated, and
// nothing runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "common/params/layout.h"
#include "common/plan/shard_memory.h"
#include "common/runtime/json.h"

namespace lodestar {

// The memory of cards, or of machines that compute on the CPU, in gigabytes.
inline constexpr int64_t kPlannedGigabytes[] = {16, 24, 40, 80, 140};

// A worker on a kind of device, with flags that change what it takes.
struct WorkerMemory {
  std::string device;     // "cpu" or "card".
  std::string dtype;      // The value of --dtype.
  std::string recompute;  // The value of --recompute.
  // Parameters, gradients, workspaces and the runner, which any micro-batch takes.
  int64_t fixed_bytes = 0;
  int64_t bytes_per_sample = 0;  // The bytes of each sample of a micro-batch.
  int64_t pinned_bytes = 0;      // Main memory beside a card, with micro-batches of 1.
  // One entry for each of kPlannedGigabytes. 0 means that not even one sample fits.
  std::vector<int64_t> largest_batches;
};

struct MemoryPlan {
  int num_servers = 1;
  bool has_local_steps = false;       // If it is set, workers keep what local steps need.
  ShardMemory server;                 // The memory of the largest shard.
  int64_t checkpoint_bytes = 0;       // The bytes of all servers together.
  std::vector<WorkerMemory> workers;  // Empty means that a client computes the model.
};

// Errors: those of PlanShards() and EstimateModelMemory().
absl::StatusOr<MemoryPlan> PlanMemory(const JobSpec& job, const Layout& layout, int num_servers);

// Whether a card of kPlannedGigabytes holds a worker in some way, or a client computes.
bool FitsAPlannedCard(const MemoryPlan& plan);

// Returns a text for people, in lines that fit so many columns.
std::string MemoryText(const MemoryPlan& plan, int columns);
Json MemoryJson(const MemoryPlan& plan);

}  // namespace lodestar
