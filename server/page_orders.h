// SPDX-License-Identifier: Apache-2.0

// The orders that operators can give through the page of ps_server --http.
#pragma once

#include "server/http/status_pages.h"
#include "server/rpc/coordinator_strand.h"

namespace lodestar::server {

// Returns the orders by name. Fields of their forms: `pause` and `stop` take `reason`; `evict`
// takes `worker` and `reason`; `readmit` takes `worker`; `set-learning-rate` takes `rate`; `resume`
// and `checkpoint` take nothing. Each field has at most 256 bytes. Each order returns once the
// coordinator has accepted it, before it has an effect. Each order is logged. `strand` must outlive
// the orders. Errors of each: InvalidArgument (another field, or a long one); those of the
// coordinator.
http::JobOrders PageOrders(rpc::CoordinatorStrand* strand);

}  // namespace lodestar::server
