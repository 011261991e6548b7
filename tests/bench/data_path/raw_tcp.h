// The ceiling that the data path is measured against: the same bytes over plain sockets, with the
// same copies on the receiving side.
#pragma once

#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "tests/bench/data_path/loopback_sockets.h"

namespace lodestar {

// Takes what clients send into memory of its own, connection by connection, and answers. Aborts if
// the machine has no sockets.
class RawTcpServer {
 public:
  // One byte once all has arrived, or as many bytes of its own, while they arrive.
  enum class Answer { kAcknowledgement, kAsManyBytes };

  // Listens on a free loopback port; each connection carries `bytes_per_connection` per transfer.
  RawTcpServer(size_t bytes_per_connection, Answer answer);
  ~RawTcpServer();  // the clients are gone

  int port() const { return listener_.port; }

 private:
  void Accept();
  void Receive(int socket);
  // All of one transfer. False: the connection is closed.
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

  // Sends an equal part of `source` over each connection, in writes of chunk_bytes, and returns
  // when all have been acknowledged.
  void Send(absl::Span<const char> source, size_t chunk_bytes);
  // The same to a server that answers with as many bytes, which arrive in `destination` meanwhile.
  void Exchange(absl::Span<const char> source, absl::Span<char> destination, size_t chunk_bytes);

 private:
  static void SendChunks(int connection, absl::Span<const char> bytes, size_t chunk_bytes);

  std::vector<int> sockets_;
};

}  // namespace lodestar
