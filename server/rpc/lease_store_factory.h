// SPDX-License-Identifier: Apache-2.0

// Creates the store that can grant a leader lease. No other code depends on which service it is.
#pragma once

#include <memory>

#include "server/durability/lease/lease_address.h"
#include "server/durability/lease/lease_store.h"

namespace lodestar::rpc {

// Returns the store at `address`. Does not call it yet.
std::unique_ptr<lease::LeaseStore> MakeLeaseStore(const lease::LeaseAddress& address);

}  // namespace lodestar::rpc
