// The only place that tells the services apart which can grant a leader lease.
#pragma once

#include <memory>

#include "server/durability/lease/lease_address.h"
#include "server/durability/lease/lease_store.h"

namespace lodestar::rpc {

// Returns the store at `address`, without calling it yet.
std::unique_ptr<lease::LeaseStore> MakeLeaseStore(const lease::LeaseAddress& address);

}  // namespace lodestar::rpc
