// Which congestion control the TCP sockets of this process have, also those of libraries that do
// not let one choose, such as gRPC. It replaces socket() of the C library in programs that link it;
// the machine, and what else runs there, stays as it is.
#pragma once

#include <set>
#include <string>

namespace lodestar {

// Sets the congestion control of sockets that are made from now on, and of those that are accepted
// from them. An empty name means the system's. Call it before other threads run. Making a socket
// aborts if the system does not have `name`, or not for this user (tcp_allowed_congestion_control).
void SetCongestionControl(const std::string& name);

// Returns those of the TCP sockets that are open now, listening ones included.
std::set<std::string> CongestionControls();

}  // namespace lodestar
