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

// What arrives, up to the room of `buffer`, copied to `destination`; its length, or 0 if the
// connection is closed.
size_t ReceiveSome(int socket, std::vector<char>& buffer, absl::Span<char> destination) {
  const ssize_t received =
      recv(socket, buffer.data(), std::min(buffer.size(), destination.size()), 0);
  if (received <= 0) return 0;
  std::memcpy(destination.data(), buffer.data(), received);
  return received;
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
  size_t filled = 0;
  while (true) {
    const absl::Span<char> rest = absl::MakeSpan(destination).subspan(filled);
    const size_t received = ReceiveSome(socket, buffer, rest);
    if (received == 0) break;
    filled += received;
    if (answer_ == Answer::kSameBytes && !SendAll(socket, rest.subspan(0, received))) break;
    if (filled < destination.size()) continue;
    filled = 0;
    const char acknowledgement = 1;
    if (answer_ == Answer::kAcknowledgement && !SendAll(socket, {&acknowledgement, 1})) break;
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
      for (size_t filled = 0; filled < in.size();) {
        const size_t received = ReceiveSome(connection, buffer, in.subspan(filled));
        LODESTAR_CHECK(received > 0) << std::strerror(errno);
        filled += received;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace lodestar
