// SPDX-License-Identifier: Apache-2.0

#include "server/durability/lease/lease_address.h"

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::lease {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LeaseAddressTest, HasEndpointsAndAKeyWithAllItsSlashes) {
  const auto address = ParseLeaseAddress("etcd://e1:2379,[::1]:2380/lodestar/run-7");
  ASSERT_OK(address);
  EXPECT_THAT(address->endpoints, ElementsAre("e1:2379", "[::1]:2380"));
  EXPECT_EQ(address->key, "lodestar/run-7");
  EXPECT_EQ(address->ToString(), "etcd://e1:2379,[::1]:2380/lodestar/run-7");
}

TEST(LeaseAddressTest, WrongOnesAreNamedWithWhatIsWanted) {
  for (const auto& [value, why] : std::vector<std::pair<std::string, std::string>>{
           {"zookeeper://h:1/k", "scheme is unknown"},
           {"h:1/k", "scheme is unknown"},
           {"etcd://h:1", "no key"},
           {"etcd://h:1/", "no key"},
           {"etcd:///k", "'' is not HOST:PORT"},
           {"etcd://h/k", "'h' is not HOST:PORT"},
           {"etcd://h:0/k", "'h:0' is not HOST:PORT"},
           {"etcd://h:1,,g:2/k", "'' is not HOST:PORT"},
           {"etcd://h:1,h:1/k", "h:1 is given twice"}}) {
    EXPECT_THAT(ParseLeaseAddress(value),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("--leader_lease=" + value), HasSubstr(why),
                               HasSubstr("etcd://HOST:PORT[,HOST:PORT...]/KEY"))));
  }
}

}  // namespace
}  // namespace lodestar::lease
