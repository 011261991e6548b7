#include "tests/bench/data_path/raw_tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/check.h"

namespace lodestar {
namespace {

// As much as gRPC reads at a time.
constexpr size_t kReadBytes = 64 << 10;

void WriteAll(int socket, absl::Span<const char> data) {
  while (!data.empty()) {
    const ssize_t written = send(socket, data.data(), data.size(), 0);
    LODESTAR_CHECK(written > 0) << std::strerror(errno);
    data.remove_prefix(written);
  }
}

void ReceiveAll(int socket, absl::Span<char> destination) {
  std::vector<char> buffer(kReadBytes);
  while (!destination.empty()) {
    const size_t wanted = std::min(buffer.size(), destination.size());
    const ssize_t received = recv(socket, buffer.data(), wanted, 0);
    LODESTAR_CHECK(received > 0) << std::strerror(errno);
    std::memcpy(destination.data(), buffer.data(), received);
    destination.remove_prefix(received);
  }
  const char acknowledgement = 1;
  WriteAll(socket, {&acknowledgement, 1});
}

struct Connection {
  int sender = -1;
  int receiver = -1;
};

Connection Connect() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  LODESTAR_CHECK(bind(listener, generic, size) == 0 && listen(listener, 1) == 0 &&
                 getsockname(listener, generic, &size) == 0)
      << std::strerror(errno);
  Connection connection;
  connection.sender = socket(AF_INET, SOCK_STREAM, 0);
  LODESTAR_CHECK(connect(connection.sender, generic, size) == 0) << std::strerror(errno);
  connection.receiver = accept(listener, nullptr, nullptr);
  LODESTAR_CHECK(connection.receiver >= 0) << std::strerror(errno);
  const int on = 1;
  setsockopt(connection.sender, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  close(listener);
  return connection;
}

}  // namespace

absl::Duration SendOverTcp(absl::Span<const char> source, absl::Span<char> destination,
                           int num_connections, size_t chunk_bytes) {
  LODESTAR_CHECK(source.size() == destination.size());
  std::vector<Connection> connections;
  for (int i = 0; i < num_connections; ++i) connections.push_back(Connect());
  const size_t part = (source.size() + num_connections - 1) / num_connections;
  const absl::Time start = absl::Now();
  std::vector<std::thread> threads;
  for (int i = 0; i < num_connections; ++i) {
    const absl::Span<const char> out = source.subspan(i * part, part);
    const absl::Span<char> in = destination.subspan(i * part, part);
    threads.emplace_back([=] { ReceiveAll(connections[i].receiver, in); });
    threads.emplace_back([=] {
      for (size_t begin = 0; begin < out.size(); begin += chunk_bytes) {
        WriteAll(connections[i].sender, out.subspan(begin, chunk_bytes));
      }
      char acknowledgement = 0;
      LODESTAR_CHECK(recv(connections[i].sender, &acknowledgement, 1, 0) == 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const absl::Duration elapsed = absl::Now() - start;
  for (const Connection& connection : connections) {
    close(connection.sender);
    close(connection.receiver);
  }
  return elapsed;
}

}  // namespace lodestar
