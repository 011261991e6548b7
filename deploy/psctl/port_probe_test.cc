// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/port_probe.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "common/runtime/file_descriptor.h"

namespace lodestar::psctl {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);

TEST(PortProbeTest, WhoListensAndNeverAcceptsTakesConnections) {
  FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(place);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&place), size), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&place), &size), 0);
  const std::string address = absl::StrCat("127.0.0.1:", ntohs(place.sin_port));
  EXPECT_FALSE(AcceptsConnections(address, kPatience)) << "bound, and does not listen";
  ASSERT_EQ(listen(listener.get(), 1), 0);
  EXPECT_TRUE(AcceptsConnections(address, kPatience));
}

TEST(PortProbeTest, WhatIsNoAddressTakesNone) {
  EXPECT_FALSE(AcceptsConnections("", kPatience));
  EXPECT_FALSE(AcceptsConnections("127.0.0.1", kPatience));
  EXPECT_FALSE(AcceptsConnections("127.0.0.1:0", kPatience));
}

}  // namespace
}  // namespace lodestar::psctl
