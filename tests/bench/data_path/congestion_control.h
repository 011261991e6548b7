// SPDX-License-Identifier: Apache-2.0

// Chooses the congestion control of the TCP sockets of this process, including those of libraries
// without such an option, such as gRPC. Programs that link this file get its socket() in place of
// that of the C library. Other programs and the machine's settings do not change.
#pragma once

#include <set>
#include <string>

namespace lodestar {

// Sets the congestion control of sockets that are made from now on, and of those that they accept.
// An empty name means the system's default. Call this before other threads run. Making a socket
// aborts if the system does not have `name`, or does not allow it for this user
// (tcp_allowed_congestion_control).
void SetCongestionControl(const std::string& name);

// Returns the congestion controls of the TCP sockets that are open now, including listening
// sockets.
std::set<std::string> CongestionControls();

}  // namespace lodestar
