// SPDX-License-Identifier: Apache-2.0

// A ReplicaConnection over gRPC.
#pragma once

#include <memory>
#include <string>

#include "proto/transport_security.h"
#include "server/durability/replica/replica_connection.h"

namespace lodestar::rpc {

// Returns a connection to the replica, which connects with its first call. `replica` is HOST:PORT.
std::unique_ptr<replica::ReplicaConnection> ConnectReplica(const std::string& replica,
                                                           const wire::TransportSecurity& security);

}  // namespace lodestar::rpc
