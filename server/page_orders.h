// What operators can order through the page of ps_server --http.
#pragma once

#include "server/http/status_pages.h"
#include "server/rpc/coordinator_strand.h"

namespace lodestar::server {

// Forms: `pause` and `stop` take `reason`; `evict` and `readmit` take `worker`, the first `reason`,
// too; `set-learning-rate` takes `rate`; `resume` and `checkpoint` nothing. Each field has at most
// 256 bytes. None waits for what it leads to. Each is in the log. `strand` outlives them. Errors of
// each: InvalidArgument for another field or a long one; those of the coordinator.
http::JobOrders PageOrders(rpc::CoordinatorStrand* strand);

}  // namespace lodestar::server
