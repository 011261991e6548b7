// A ReplicaConnection over gRPC.
#pragma once

#include <memory>
#include <string>

#include "proto/transport_security.h"
#include "server/durability/replica/replica_connection.h"

namespace lodestar {

// Connects with the first call. `replica` is HOST:PORT.
std::unique_ptr<ReplicaConnection> ConnectReplica(const std::string& replica,
                                                  const TransportSecurity& security);

}  // namespace lodestar
