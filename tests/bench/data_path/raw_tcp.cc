// SPDX-License-Identifier: Apache-2.0

#include "tests/bench/data_path/raw_tcp.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/runtime/check.h"

namespace lodestar {
namespace {

// Bytes per read, as many as gRPC reads at a time.
constexpr size_t kReadBytes = 64 << 10;

// Receives until `destination` is full, copying piece by piece out of `buffer`. Returns false if
// the connection is closed.
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
    : bytes_(bytes_per_connection), answer_(answer), listener_(ListenOnLoopback()) {
  accepting_ = std::thread([this] { Accept(); });
}

RawTcpServer::~RawTcpServer() {
  shutdown(listener_.socket, SHUT_RDWR);
  accepting_.join();
  for (std::thread& thread : receiving_) thread.join();
  close(listener_.socket);
}

void RawTcpServer::Accept() {
  for (int socket = 0; (socket = lodestar::Accept(listener_)) >= 0;) {
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
  // The client's first byte shows that a transfer has begun.
  if (!ReceiveAll(socket, buffer, destination.subspan(0, 1))) return false;
  bool is_sent = false;
  std::thread sending([&] { is_sent = SendAll(socket, source); });
  const bool has_arrived = ReceiveAll(socket, buffer, destination.subspan(1));
  sending.join();
  return has_arrived && is_sent;
}

RawTcpClient::RawTcpClient(int port, int num_connections) {
  for (int i = 0; i < num_connections; ++i) sockets_.push_back(ConnectToLoopback(port));
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
