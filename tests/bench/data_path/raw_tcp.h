// The ceiling that the data path is measured against: the same bytes over plain sockets, with the
// same copies on the receiving side.
#pragma once

#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "absl/types/span.h"

namespace lodestar {

// Takes what clients send into memory of its own, connection by connection, and acknowledges it.
// Aborts if the machine has no sockets.
class RawTcpServer {
 public:
  // Listens on a free loopback port; each connection carries `bytes_per_connection` per transfer.
  explicit RawTcpServer(size_t bytes_per_connection);
  ~RawTcpServer();  // the clients are gone

  int port() const { return port_; }

 private:
  void Accept();
  void Receive(int socket);

  const size_t bytes_;
  int listener_ = -1;
  int port_ = 0;
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

 private:
  std::vector<int> sockets_;
};

}  // namespace lodestar
