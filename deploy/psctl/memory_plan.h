// SPDX-License-Identifier: Apache-2.0

// Computes how much memory a job takes: on a server, on its disk, and on workers of each kind. The
// numbers come from the code with which servers and workers check their memory before they start.
// Nothing is allocated or run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "common/params/layout.h"
#include "common/plan/shard_memory.h"
#include "common/runtime/json.h"

namespace lodestar::psctl {

// Memory sizes that the plan considers, in gigabytes, for cards and for machines that compute on
// the CPU.
inline constexpr int64_t kPlannedGigabytes[] = {16, 24, 40, 80, 140};

// The memory of a worker on one kind of device, with the flags that change it.
struct WorkerMemory {
  std::string device;     // "cpu" or "card".
  std::string dtype;      // The value of --dtype.
  std::string recompute;  // The value of --recompute.
  // Bytes that do not depend on the size of the micro-batch: parameters, gradients, workspaces and
  // the runner.
  int64_t fixed_bytes = 0;
  int64_t bytes_per_sample = 0;  // Bytes per sample of a micro-batch.
  // Pinned main memory of a worker on a card, with micro-batches of 1.
  int64_t pinned_bytes = 0;
  // Largest micro-batch for each of kPlannedGigabytes. 0 means that not even one sample fits.
  std::vector<int64_t> largest_batches;
};

struct MemoryPlan {
  int num_servers = 1;
  bool has_local_steps = false;       // True: workers also hold what local steps need.
  plan::ShardMemory server;           // The memory of the largest shard.
  int64_t checkpoint_bytes = 0;       // The size of a checkpoint, over all servers.
  std::vector<WorkerMemory> workers;  // Empty means that a client computes the model.
};

// Plans the memory of a job. Errors: those of PlanShards() and EstimateModelMemory().
absl::StatusOr<MemoryPlan> PlanMemory(const job::JobSpec& job, const params::Layout& layout,
                                      int num_servers);

// Returns true if a worker with some flags fits on a card of some size in kPlannedGigabytes. Also
// returns true if a client's own program computes the model, because the plan then has no workers.
bool FitsAPlannedCard(const MemoryPlan& plan);

// Returns a text for operators, in lines of at most `columns` characters.
std::string MemoryText(const MemoryPlan& plan, int columns);
Json MemoryJson(const MemoryPlan& plan);

}  // namespace lodestar::psctl
