#include "common/host_port.h"

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar {
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
  for (const char* text :
       {"", "host", "host:", ":50051", "host:0", "host:65536", "host:99999", "host:-1", "host:x",
        "::1:50051", "[::1:50051", "::1]:50051", "http://host:50051", "a b:50051"}) {
    EXPECT_THAT(ParseHostPort("server", text, 1),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(std::string("--server=") + text),
                               HasSubstr("a port of 1 to 65535"))))
        << text;
  }
}

}  // namespace
}  // namespace lodestar
