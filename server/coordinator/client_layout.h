// What a layout that a client supplies may be, before anything is made of it: model `client`. Pure.
#pragma once

#include "absl/status/status.h"
#include "common/params/layout.h"
#include "server/coordinator/coordinator_config.h"

namespace lodestar {

// The parameter space is refused if a server's part of it does not fit into the memory that the
// servers may take, and layout and buckets if they do not fit into a registration, one message,
// which every later worker gets. `job`: in place of the one of `config`. Errors: InvalidArgument
// naming what there is and what is allowed.
absl::Status CheckClientLayout(const CoordinatorConfig& config, const JobSpec& job,
                               const Layout& layout);

}  // namespace lodestar
