#include "tests/bench/data_path/raw_tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/check.h"

namespace lodestar {
namespace {

// As much as gRPC reads at a time.
constexpr size_t kReadBytes = 64 << 10;

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

}  // namespace

RawTcpServer::RawTcpServer(size_t bytes_per_connection) : bytes_(bytes_per_connection) {
  listener_ = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  constexpr int kBacklog = 16;
  LODESTAR_CHECK(bind(listener_, generic, size) == 0 && listen(listener_, kBacklog) == 0 &&
                 getsockname(listener_, generic, &size) == 0)
      << std::strerror(errno);
  port_ = ntohs(address.sin_port);
  accepting_ = std::thread([this] { Accept(); });
}

RawTcpServer::~RawTcpServer() {
  shutdown(listener_, SHUT_RDWR);
  accepting_.join();
  for (std::thread& thread : receiving_) thread.join();
  close(listener_);
}

void RawTcpServer::Accept() {
  for (int socket = 0; (socket = accept(listener_, nullptr, nullptr)) >= 0;) {
    receiving_.emplace_back([this, socket] { Receive(socket); });
  }
}

void RawTcpServer::Receive(int socket) {
  std::vector<char> buffer(kReadBytes);
  std::vector<char> destination(bytes_);
  size_t filled = 0;
  while (true) {
    const size_t wanted = std::min(buffer.size(), destination.size() - filled);
    const ssize_t received = recv(socket, buffer.data(), wanted, 0);
    if (received <= 0) break;
    std::memcpy(destination.data() + filled, buffer.data(), received);
    filled += received;
    if (filled < destination.size()) continue;
    filled = 0;
    const char acknowledgement = 1;
    if (send(socket, &acknowledgement, 1, MSG_NOSIGNAL) != 1) break;
  }
  close(socket);
}

RawTcpClient::RawTcpClient(int port, int num_connections) {
  for (int i = 0; i < num_connections; ++i) {
    const int connection = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = Loopback(port);
    LODESTAR_CHECK(
        connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
        << std::strerror(errno);
    const int on = 1;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    sockets_.push_back(connection);
  }
}

RawTcpClient::~RawTcpClient() {
  for (const int connection : sockets_) close(connection);
}

void RawTcpClient::Send(absl::Span<const char> source, size_t chunk_bytes) {
  const size_t part = source.size() / sockets_.size();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < sockets_.size(); ++i) {
    threads.emplace_back([=, connection = sockets_[i], out = source.subspan(i * part, part)] {
      for (size_t sent = 0; sent < out.size();) {
        const size_t wanted = std::min(chunk_bytes, out.size() - sent);
        const ssize_t written = send(connection, out.data() + sent, wanted, MSG_NOSIGNAL);
        LODESTAR_CHECK(written > 0) << std::strerror(errno);
        sent += written;
      }
      char acknowledgement = 0;
      LODESTAR_CHECK(recv(connection, &acknowledgement, 1, 0) == 1) << std::strerror(errno);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace lodestar
