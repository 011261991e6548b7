// SPDX-License-Identifier: Apache-2.0

// The orders that operators can give through the page of ps_server --http.
#pragma once

#include "server/http/status_pages.h"
#include "server/rpc/coordinator_strand.h"

namespace lodestar::server {

// Returns the orders by name, each with these fields in its form:
// - `pause` and `stop`: `reason`
// - `evict`: `worker` and `reason`
// - `readmit`: `worker`
// - `set-learning-rate`: `rate`
// - `resume` and `checkpoint`: none
//
// Each field has at most 256 bytes. Each order is logged. It returns once the coordinator has
// accepted it, before it has an effect. `strand` must outlive the orders. Errors of each:
// InvalidArgument (another field, or a long one); those of the coordinator.
http::JobOrders PageOrders(rpc::CoordinatorStrand* strand);

}  // namespace lodestar::server
