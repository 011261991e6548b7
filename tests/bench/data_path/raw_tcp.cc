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

// False: the connection is closed.
bool SendAll(int socket, absl::Span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(sent);
  }
  return true;
}

// Until `destination` is full of what arrives, piece by piece copied out of `buffer`. False: the
// connection is closed.
bool ReceiveAll(int socket, absl::Span<char> buffer, absl::Span<char> destination) {
  while (!destination.empty()) {
    const ssize_t received =
        recv(socket, buffer.data(), std::min(buffer.size(), destination.size()), 0);
    if (received <= 0) return false;
    std::memcpy(destination.data(), buffer.data(), received);
    destination.remove_prefix(received);
  }
  return true;
}

}  // namespace

RawTcpServer::RawTcpServer(size_t bytes_per_connection, Answer answer)
    : bytes_(bytes_per_connection), answer_(answer) {
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
  const std::vector<char> source(answer_ == Answer::kAsManyBytes ? bytes_ : 0, 1);
  while (answer_ == Answer::kAcknowledgement
             ? Acknowledge(socket, absl::MakeSpan(buffer), absl::MakeSpan(destination))
             : Exchange(socket, source, absl::MakeSpan(buffer), absl::MakeSpan(destination))) {
  }
  close(socket);
}

bool RawTcpServer::Acknowledge(int socket, absl::Span<char> buffer,
                               absl::Span<char> destination) const {
  const char acknowledgement = 1;
  return ReceiveAll(socket, buffer, destination) && SendAll(socket, {&acknowledgement, 1});
}

bool RawTcpServer::Exchange(int socket, absl::Span<const char> source, absl::Span<char> buffer,
                            absl::Span<char> destination) const {
  // The first byte says that a transfer has begun.
  if (!ReceiveAll(socket, buffer, destination.subspan(0, 1))) return false;
  bool is_sent = false;
  std::thread sending([&] { is_sent = SendAll(socket, source); });
  const bool has_arrived = ReceiveAll(socket, buffer, destination.subspan(1));
  sending.join();
  return has_arrived && is_sent;
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

void RawTcpClient::SendChunks(int connection, absl::Span<const char> bytes, size_t chunk_bytes) {
  for (; !bytes.empty(); bytes.remove_prefix(std::min(chunk_bytes, bytes.size()))) {
    LODESTAR_CHECK(SendAll(connection, bytes.subspan(0, chunk_bytes))) << std::strerror(errno);
  }
}

void RawTcpClient::Send(absl::Span<const char> source, size_t chunk_bytes) {
  const size_t part = source.size() / sockets_.size();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < sockets_.size(); ++i) {
    threads.emplace_back([=, connection = sockets_[i], out = source.subspan(i * part, part)] {
      SendChunks(connection, out, chunk_bytes);
      char acknowledgement = 0;
      LODESTAR_CHECK(recv(connection, &acknowledgement, 1, 0) == 1) << std::strerror(errno);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void RawTcpClient::Exchange(absl::Span<const char> source, absl::Span<char> destination,
                            size_t chunk_bytes) {
  const size_t part = source.size() / sockets_.size();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < sockets_.size(); ++i) {
    threads.emplace_back([=, connection = sockets_[i], out = source.subspan(i * part, part)] {
      SendChunks(connection, out, chunk_bytes);
    });
    threads.emplace_back([=, connection = sockets_[i], in = destination.subspan(i * part, part)] {
      std::vector<char> buffer(kReadBytes);
      LODESTAR_CHECK(ReceiveAll(connection, absl::MakeSpan(buffer), in)) << std::strerror(errno);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace lodestar
