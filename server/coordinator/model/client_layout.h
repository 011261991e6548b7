// SPDX-License-Identifier: Apache-2.0

// Checks the layout that a client with the model `client` brings, before the servers use it. Pure.
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

// Returns why the servers cannot take the layout. Not set means that they can. A layout is refused
// if it cannot be cut into shards or buckets, or if the part of one server does not fit into the
// memory that servers may take. It is also refused if its tensors or buckets do not fit into a
// registration, which is a single message to each later worker.
std::optional<ModelRefusal> CheckClientLayout(const ServerRoom& room, const job::JobSpec& job,
                                              const params::Layout& layout);

}  // namespace lodestar::model
