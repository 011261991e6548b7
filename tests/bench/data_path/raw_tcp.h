// SPDX-License-Identifier: Apache-2.0

// The upper bound for the data path: the same bytes over plain sockets, with the same copies on the
// receiving side.
#pragma once

#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "tests/bench/data_path/loopback_sockets.h"

namespace lodestar {

// Receives what clients send into its own memory, connection by connection, and answers. Aborts if
// the machine has no sockets.
class RawTcpServer {
 public:
  // kAcknowledgement answers with one byte once all has arrived. kAsManyBytes sends as many bytes
  // back while the client's bytes arrive.
  enum class Answer { kAcknowledgement, kAsManyBytes };

  // Listens on a free loopback port. In each transfer, each connection carries
  // `bytes_per_connection`.
  RawTcpServer(size_t bytes_per_connection, Answer answer);
  ~RawTcpServer();  // all clients must be gone

  int port() const { return listener_.port; }

 private:
  void Accept();
  void Receive(int socket);
  // Both do one whole transfer. They return false if the connection is closed.
  bool Acknowledge(int socket, absl::Span<char> buffer, absl::Span<char> destination) const;
  bool Exchange(int socket, absl::Span<const char> source, absl::Span<char> buffer,
                absl::Span<char> destination) const;

  const size_t bytes_;
  const Answer answer_;
  const Listener listener_;
  std::thread accepting_;
  std::vector<std::thread> receiving_;
};

class RawTcpClient {
 public:
  RawTcpClient(int port, int num_connections);
  ~RawTcpClient();

  // Sends an equal part of `source` over each connection, in writes of chunk_bytes. Returns when
  // all parts have been acknowledged.
  void Send(absl::Span<const char> source, size_t chunk_bytes);
  // Does the same with a server that answers kAsManyBytes. The answer arrives in `destination`
  // while `source` is sent.
  void Exchange(absl::Span<const char> source, absl::Span<char> destination, size_t chunk_bytes);

 private:
  static void SendChunks(int connection, absl::Span<const char> bytes, size_t chunk_bytes);

  std::vector<int> sockets_;
};

}  // namespace lodestar
