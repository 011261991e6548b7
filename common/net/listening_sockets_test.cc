// SPDX-License-Identifier: Apache-2.0

#include "common/net/listening_sockets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "common/testing/status_matchers.h"

namespace lodestar::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(20);

FileDescriptor ConnectV4(int port) {
  FileDescriptor client(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    client.Reset();
  }
  return client;
}

TEST(ListeningSocketsTest, SystemChoosesPort) {
  ASSERT_OK_AND_ASSIGN(const ListeningSockets sockets,
                       Listen({"127.0.0.1", 0}, "--listen", kTimeout));
  EXPECT_GT(sockets.port, 0);
  EXPECT_TRUE(ConnectV4(sockets.port).is_open());
}

TEST(ListeningSocketsTest, NamesAreUnderstood) {
  ASSERT_OK_AND_ASSIGN(const ListeningSockets sockets,
                       Listen({"localhost", 0}, "--listen", kTimeout));
  EXPECT_TRUE(ConnectV4(sockets.port).is_open());
}

TEST(ListeningSocketsTest, WildcardsAreOfBothFamilies) {
  for (const char* const host : {"0.0.0.0", "::"}) {
    ASSERT_OK_AND_ASSIGN(const ListeningSockets sockets, Listen({host, 0}, "--listen", kTimeout));
    EXPECT_EQ(sockets.sockets.size(), 1);
    EXPECT_TRUE(ConnectV4(sockets.port).is_open()) << host;
  }
}

TEST(ListeningSocketsTest, SaysWhetherThisMachineAloneReachesThem) {
  ASSERT_OK_AND_ASSIGN(const ListeningSockets own, Listen({"127.0.1.1", 0}, "--listen", kTimeout));
  EXPECT_THAT(own.loopback_only, testing::ElementsAre("127.0.1.1"));
  ASSERT_OK_AND_ASSIGN(const ListeningSockets all, Listen({"0.0.0.0", 0}, "--listen", kTimeout));
  EXPECT_THAT(all.loopback_only, testing::IsEmpty());
}

TEST(ListeningSocketsTest, TakenPortIsNoticed) {
  for (const char* const host : {"127.0.0.1", "0.0.0.0", "localhost"}) {
    ASSERT_OK_AND_ASSIGN(const ListeningSockets first,
                         Listen({"127.0.0.1", 0}, "--listen", kTimeout));
    EXPECT_THAT(
        Listen({host, first.port}, "--listen", kTimeout),
        StatusIs(absl::StatusCode::kUnavailable,
                 AllOf(HasSubstr("in use"), HasSubstr("stop the process that uses this port"))))
        << host;
  }
}

TEST(ListeningSocketsTest, PortIsFreeAtOnceWhenItsConnectionsHaveEnded) {
  ASSERT_OK_AND_ASSIGN(ListeningSockets first, Listen({"127.0.0.1", 0}, "--listen", kTimeout));
  FileDescriptor client = ConnectV4(first.port);
  ASSERT_TRUE(client.is_open());
  // The server closes its connection first, so the port stays in TIME_WAIT for a minute.
  FileDescriptor(accept(first.sockets[0].get(), nullptr, nullptr)).Reset();
  client.Reset();
  const int port = first.port;
  first.sockets.clear();
  EXPECT_THAT(Listen({"127.0.0.1", port}, "--listen", kTimeout), IsOk());
}

TEST(ListeningSocketsTest, AddressOfAnotherMachineIsRefused) {
  EXPECT_THAT(Listen({"192.0.2.1", 0}, "--listen", kTimeout),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("192.0.2.1:0"),
                             HasSubstr("this machine does not have that address"))));
  EXPECT_THAT(Listen({"no.such.host.invalid", 0}, "--listen", kTimeout),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("no.such.host.invalid:0"),
                             HasSubstr("correct the host name in --listen"))));
}

}  // namespace
}  // namespace lodestar::net
