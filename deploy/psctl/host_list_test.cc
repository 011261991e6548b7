// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/host_list.h"

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::psctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HostListTest, HostsHaveWorkersOrCards) {
  EXPECT_THAT(ParseHostList(
                  "\xef\xbb\xbf# two racks\ngpu1\n\n  me@gpu2 workers=2  # slow\r\ngpu3 cards=0,2"),
              IsOkAndHolds(ElementsAre(WorkerHost{"gpu1", 1, {}}, WorkerHost{"me@gpu2", 2, {}},
                                       WorkerHost{"gpu3", 2, {0, 2}})));
}

TEST(HostListTest, WhatIsWrongIsNamedWithItsLine) {
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {"", "no host"},
           {"# none\n", "no host"},
           {"a\n-oProxyCommand=x", "line 2: '-oProxyCommand=x' is not a host name"},
           {"workers=2", "line 1: 'workers=2' is not a host name"},
           {"a workers=0", "a number from 1 to 64"},
           {"a workers=two", "a number from 1 to 64"},
           {"a cards=0,0", "different numbers"},
           {"a cards=", "different numbers"},
           {"a cards=0 workers=1", "'cards=0'"},
           {"a b", "'b'"}}) {
    EXPECT_THAT(ParseHostList(text), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words)))
        << text;
  }
}

}  // namespace
}  // namespace lodestar::psctl
