// SPDX-License-Identifier: Apache-2.0

#include "server/firewall/received_bytes.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

namespace lodestar::firewall {

std::optional<uint64_t> ReceivedBytesOf(int socket) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  const size_t needed = offsetof(tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received);
  if (size < needed) return std::nullopt;
  return info.tcpi_bytes_received;
}

}  // namespace lodestar::firewall
