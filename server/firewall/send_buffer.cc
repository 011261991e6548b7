// SPDX-License-Identifier: Apache-2.0

#include "server/firewall/send_buffer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace lodestar::firewall {
namespace {

// Maximum round trip of the handshake between two sockets of one machine. No program takes part in
// a handshake, so a longer one comes from an emulated network.
constexpr absl::Duration kLongestWithinMachine = absl::Milliseconds(1);

std::optional<absl::Duration> RoundTripOf(int socket) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_rtt == 0) {
    return std::nullopt;
  }
  return absl::Microseconds(info.tcpi_rtt);
}

}  // namespace

bool LimitsSendBuffer(bool is_loopback, std::optional<absl::Duration> round_trip,
                      size_t num_connections) {
  return is_loopback && num_connections <= kFewConnections && round_trip.has_value() &&
         *round_trip <= kLongestWithinMachine;
}

void LimitSendBufferWithinMachine(int socket, bool is_loopback, size_t num_connections) {
  if (!LimitsSendBuffer(is_loopback, RoundTripOf(socket), num_connections)) return;
  const int bytes = kLocalSendBufferBytes;
  setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

}  // namespace lodestar::firewall
