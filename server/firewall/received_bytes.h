// This function tells how many bytes the kernel has received on a connection (TCP_INFO in tcp(7)).
// It has a file of its own, because <linux/tcp.h>, which has the count, and <netinet/tcp.h> define
// the same names.
#pragma once

#include <cstdint>
#include <optional>

namespace lodestar::firewall {

// Returns the bytes since the connection began, or none where `socket` is no TCP connection or the
// kernel does not count them.
std::optional<uint64_t> ReceivedBytesOf(int socket);

}  // namespace lodestar::firewall
