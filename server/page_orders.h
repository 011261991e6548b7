// What operators can order through the page of ps_server --http.
#pragma once

#include "server/http/status_pages.h"
#include "server/rpc/coordinator_strand.h"

namespace lodestar {

// Forms: `pause` and `stop` take `reason`; `evict` and `readmit` take `worker`, the first `reason`,
// too; `set-learning-rate` takes `rate`; `resume` and `checkpoint` nothing. None waits for what it
// leads to. Each is in the log. `strand` outlives them.
JobOrders PageOrders(CoordinatorStrand* strand);

}  // namespace lodestar
