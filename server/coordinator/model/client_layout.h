// What a layout that a client supplies may be, before anything is made of it: model `client`. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "common/job/job_spec.h"
#include "common/machine/host_memory.h"
#include "common/params/layout.h"
#include "server/coordinator/model/model_refusal.h"

namespace lodestar {

// What the servers can take.
struct ServerRoom {
  int num_shards = 1;
  HostMemory memory = {};     // see CoordinatorConfig
  int64_t staging_bytes = 0;  // see CoordinatorConfig
};

// Returns a refusal of the parameter space if a server's part of it does not fit into the memory
// that the servers may take. Returns one of the layout, or its buckets, if they do not fit into a
// registration, one message, which every later worker gets.
std::optional<ModelRefusal> CheckClientLayout(const ServerRoom& room, const JobSpec& job,
                                              const Layout& layout);

}  // namespace lodestar
