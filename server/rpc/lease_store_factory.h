// The only place that tells the services apart which can grant a leader lease.
#pragma once

#include <memory>

#include "server/durability/lease/lease_address.h"
#include "server/durability/lease/lease_store.h"

namespace lodestar {

// Returns the store at `address`, without calling it yet.
std::unique_ptr<LeaseStore> MakeLeaseStore(const LeaseAddress& address);

}  // namespace lodestar
