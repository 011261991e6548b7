// SPDX-License-Identifier: Apache-2.0

// Counts the bytes that the kernel has received on a connection (TCP_INFO in tcp(7)). The function
// has a file of its own, because <linux/tcp.h>, which has the count, and <netinet/tcp.h> define the
// same names.
#pragma once

#include <cstdint>
#include <optional>

namespace lodestar::firewall {

// Returns the number of bytes since the connection began. The result is not set if `socket` is no
// TCP connection or if the kernel does not count the bytes.
std::optional<uint64_t> ReceivedBytesOf(int socket);

}  // namespace lodestar::firewall
