// SPDX-License-Identifier: Apache-2.0

#include "tests/bench/data_path/loopback_sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "common/runtime/check.h"

namespace lodestar {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

void SetUp(int connection, int send_buffer_bytes) {
  const int on = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (send_buffer_bytes == 0) return;
  setsockopt(connection, SOL_SOCKET, SO_SNDBUF, &send_buffer_bytes, sizeof(send_buffer_bytes));
}

}  // namespace

Listener ListenOnLoopback() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  constexpr int kBacklog = 16;
  LODESTAR_CHECK(bind(listener, generic, size) == 0 && listen(listener, kBacklog) == 0 &&
                 getsockname(listener, generic, &size) == 0)
      << std::strerror(errno);
  return {listener, ntohs(address.sin_port)};
}

int Accept(const Listener& listener, int send_buffer_bytes) {
  const int connection = accept(listener.socket, nullptr, nullptr);
  if (connection >= 0) SetUp(connection, send_buffer_bytes);
  return connection;
}

int ConnectToLoopback(int port, int send_buffer_bytes) {
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = Loopback(port);
  LODESTAR_CHECK(
      connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
      << std::strerror(errno);
  SetUp(connection, send_buffer_bytes);
  return connection;
}

bool SendAll(int socket, absl::Span<const char> bytes) { return SendBoth(socket, bytes, {}); }

bool SendBoth(int socket, absl::Span<const char> first, absl::Span<const char> second) {
  iovec parts[] = {{const_cast<char*>(first.data()), first.size()},
                   {const_cast<char*>(second.data()), second.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  while (parts[0].iov_len + parts[1].iov_len > 0) {
    ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    for (iovec& part : parts) {
      const size_t of_part = std::min(part.iov_len, static_cast<size_t>(sent));
      part.iov_base = static_cast<char*>(part.iov_base) + of_part;
      part.iov_len -= of_part;
      sent -= static_cast<ssize_t>(of_part);
    }
  }
  return true;
}

}  // namespace lodestar
