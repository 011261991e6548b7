// SPDX-License-Identifier: Apache-2.0

// Checks the layout of a client before the servers use it. Only for jobs with the model `client`.
// Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "common/job/job_spec.h"
#include "common/machine/host_memory.h"
#include "common/params/layout.h"
#include "server/coordinator/model/model_refusal.h"

namespace lodestar::model {

// Limits of the servers.
struct ServerRoom {
  int num_shards = 1;
  machine::HostMemory memory = {};  // see CoordinatorConfig
  int64_t staging_bytes = 0;        // see CoordinatorConfig
};

// Returns why the servers cannot take the layout. Not set means that they can. They refuse a layout
// in these cases:
// - Its tensors or buckets do not fit into a registration, which is a single message to each later
//   worker.
// - It cannot be cut into shards or buckets.
// - The largest shard does not fit into the memory that a server may take.
std::optional<ModelRefusal> CheckClientLayout(const ServerRoom& room, const job::JobSpec& job,
                                              const params::Layout& layout);

}  // namespace lodestar::model
