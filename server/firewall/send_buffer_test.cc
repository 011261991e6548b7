// SPDX-License-Identifier: Apache-2.0

#include "server/firewall/send_buffer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/runtime/file_descriptor.h"
#include "gtest/gtest.h"

namespace lodestar::firewall {
namespace {

int SendBufferOf(const FileDescriptor& socket) {
  int bytes = 0;
  socklen_t size = sizeof(bytes);
  EXPECT_EQ(getsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &bytes, &size), 0);
  return bytes;
}

// Returns the accepted socket of a new connection over loopback. `other` is set to the connecting
// socket.
FileDescriptor Accepted(FileDescriptor& other) {
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener.get(), generic, size), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), generic, &size), 0);
  other.Reset(socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(connect(other.get(), generic, size), 0);
  return FileDescriptor(accept(listener.get(), nullptr, nullptr));
}

TEST(SendBufferTest, OnlyFewConnectionsWithoutDelayAreLimited) {
  constexpr absl::Duration kShort = absl::Microseconds(30);
  EXPECT_TRUE(LimitsSendBuffer(true, kShort, 1));
  EXPECT_TRUE(LimitsSendBuffer(true, kShort, kFewConnections));
  EXPECT_FALSE(LimitsSendBuffer(true, kShort, kFewConnections + 1));
  EXPECT_FALSE(LimitsSendBuffer(true, absl::Milliseconds(20), 1)) << "an emulated network";
  EXPECT_FALSE(LimitsSendBuffer(true, std::nullopt, 1));
  EXPECT_FALSE(LimitsSendBuffer(false, kShort, 1)) << "a fast network";
}

absl::Duration RoundTripOf(const FileDescriptor& socket) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  EXPECT_EQ(getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
  return absl::Microseconds(info.tcpi_rtt);
}

TEST(SendBufferTest, AConnectionOverLoopbackIsLimited) {
  FileDescriptor other;
  FileDescriptor accepted = Accepted(other);
  // On a busy machine, a handshake may take too long, so it is tried until it is fast enough.
  while (!LimitsSendBuffer(true, RoundTripOf(accepted), 1)) accepted = Accepted(other);
  const int before = SendBufferOf(accepted);
  LimitSendBufferWithinMachine(accepted.get(), /*is_loopback=*/false, 1);
  EXPECT_EQ(SendBufferOf(accepted), before);
  LimitSendBufferWithinMachine(accepted.get(), /*is_loopback=*/true, 1);
  // The system may allow less than kLocalSendBufferBytes (net.core.wmem_max).
  EXPECT_NE(SendBufferOf(accepted), before);
  EXPECT_LE(SendBufferOf(accepted), 2 * kLocalSendBufferBytes);
}

TEST(SendBufferTest, OtherFilesAreLeftAlone) {
  LimitSendBufferWithinMachine(-1, /*is_loopback=*/true, 1);
  const FileDescriptor unconnected(socket(AF_INET, SOCK_STREAM, 0));
  const int before = SendBufferOf(unconnected);
  LimitSendBufferWithinMachine(unconnected.get(), /*is_loopback=*/true, 1);
  EXPECT_EQ(SendBufferOf(unconnected), before);
}

}  // namespace
}  // namespace lodestar::firewall
