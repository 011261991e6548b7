// SPDX-License-Identifier: Apache-2.0

#include "common/net/host_port.h"

#include <string>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(HostPortTest, TakesNamesAndAddressesOfBothKinds) {
  for (const char* text : {"127.0.0.1:50051", "localhost:1", "s1.example:65535", "[::1]:50051"}) {
    ASSERT_OK_AND_ASSIGN(const HostPort address, ParseHostPort("server", text, 1));
    EXPECT_EQ(address.ToString(), text);
  }
  ASSERT_OK_AND_ASSIGN(const HostPort address, ParseHostPort("listen", "[::]:0", 0));
  EXPECT_EQ(address.host, "::");
  EXPECT_EQ(address.port, 0);
}

TEST(HostPortTest, RefusesWhatNobodyCanDial) {
  for (const char* text : {"",
                           "host",
                           "host:",
                           ":50051",
                           "host:0",
                           "host:65536",
                           "host:99999",
                           "host:-1",
                           "host:x",
                           "::1:50051",
                           "[::1:50051",
                           "::1]:50051",
                           "http://host:50051",
                           "a b:50051",
                           "unix:1",
                           "DNS:443",
                           "unix-abstract:7",
                           "a%2fb:1",
                           "a\x1b:1",
                           "a?b:1"}) {
    EXPECT_THAT(ParseHostPort("server", text, 1),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(std::string("--server=") + text),
                               HasSubstr("a port of 1 to 65535"))))
        << text;
  }
}

TEST(HostPortTest, SaysWhereAJoinStringGoesWithoutItsSecret) {
  const std::string hash(64, 'a');
  for (const auto& [flag, wanted] : {std::pair("coordinator", "--join"),
                                     {"server", "--join"},
                                     {"upstream", "--upstream_join"}}) {
    EXPECT_THAT(ParseHostPort(flag, "lodestar://h:1/L1" + hash + ".0b.5ec2e7", 1),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(std::string("--") + flag + "=lodestar://h:1/..."),
                               HasSubstr(wanted), ::testing::Not(HasSubstr("5ec2e7")))));
  }
}

TEST(HostPortTest, AnAddressIsNoName) {
  for (const char* address : {"10.0.0.1", "::1", "fd00::1"}) EXPECT_TRUE(IsAddress(address));
  for (const char* name : {"", "localhost", "10.0.0", "10.0.0.1.example", "[::1]", "10.0.0.1:80"}) {
    EXPECT_FALSE(IsAddress(name)) << name;
  }
}

TEST(HostPortTest, APeersAddressIsDialledIfItIsHostAndPort) {
  for (const char* address : {"10.0.0.1:50051", "node_7.example:1", "[fe80::1%eth0]:50051"}) {
    EXPECT_OK(CheckPeerAddress("shard 3", address));
  }
  for (const std::string& address :
       {std::string(), std::string("unix:/tmp/socket"), std::string("dns:443"),
        std::string("dns:///a:1"), std::string("a:0"), std::string(1 << 20, 'a') + ":1"}) {
    const absl::Status status = CheckPeerAddress("shard 3", address);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of shard 3")));
    EXPECT_LT(status.message().size(), 1000u);
  }
}

}  // namespace
}  // namespace lodestar::net
