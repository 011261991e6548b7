// SPDX-License-Identifier: Apache-2.0

// Counts the bytes that the kernel has received on a connection (TCP_INFO in tcp(7)). The function
// has a file of its own: <linux/tcp.h> has the count, but conflicts with <netinet/tcp.h>.
#pragma once

#include <cstdint>
#include <optional>

namespace lodestar::firewall {

// Returns the number of bytes received since the connection began. Not set means that `socket` is
// not a TCP connection, or that the kernel does not count.
std::optional<uint64_t> ReceivedBytesOf(int socket);

}  // namespace lodestar::firewall
