// SPDX-License-Identifier: Apache-2.0

#include "common/net/address_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/runtime/status_hints.h"
#include "common/testing/status_matchers.h"

namespace lodestar::net {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const absl::Status kNobody = absl::UnavailableError("nobody there");
const absl::Status kNoCoordinator = absl::UnimplementedError("a replica");

TEST(AddressListTest, IsReadFromAFlag) {
  ASSERT_OK_AND_ASSIGN(const AddressList one, AddressList::Parse("coordinator", "a:1"));
  EXPECT_EQ(one.size(), 1);
  ASSERT_OK_AND_ASSIGN(AddressList three, AddressList::Parse("coordinator", "a:1,b:2,[::1]:3"));
  EXPECT_EQ(three.ToString(), "a:1, b:2, [::1]:3");
  for (const char* const wrong : {"", "a", "a:1,", ",a:1", "a:1, b:2", "a:1;b:2", "a:1,b:0"}) {
    EXPECT_THAT(AddressList::Parse("coordinator", wrong),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--coordinator=")))
        << wrong;
  }
  EXPECT_THAT(AddressList::Parse("coordinator", "a:1,b:2,a:1"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a:1 twice")));
}

TEST(AddressListTest, IsGoneThroughOnceFromTheOneThatAnsweredLast) {
  AddressList addresses({"a:1", "b:2", "c:3"});
  AddressSearch first(&addresses);
  EXPECT_TRUE(first.GoesOn(kNobody));
  EXPECT_EQ(addresses.current(), "b:2");
  EXPECT_FALSE(first.GoesOn(absl::OkStatus()));
  EXPECT_OK(first.Outcome());
  AddressSearch again(&addresses);
  EXPECT_EQ(addresses.current(), "b:2");
  EXPECT_TRUE(again.GoesOn(absl::DeadlineExceededError("b:2: silent")));
  EXPECT_TRUE(again.GoesOn(kNoCoordinator));
  EXPECT_FALSE(again.GoesOn(kNobody)) << "all were tried";
  EXPECT_EQ(addresses.current(), "b:2");
  EXPECT_THAT(again.Outcome(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("no server of a:1, b:2, c:3"), HasSubstr("b:2: silent"),
                             HasSubstr("a replica"), HasSubstr("nobody there"))));
}

TEST(AddressListTest, ARefusalOfTheCoordinatorEndsTheSearch) {
  AddressList addresses({"a:1", "b:2"});
  AddressSearch search(&addresses);
  EXPECT_FALSE(search.GoesOn(absl::AbortedError("this life is over")));
  EXPECT_EQ(addresses.current(), "a:1");
  EXPECT_THAT(search.Outcome(), StatusIs(absl::StatusCode::kAborted));
}

TEST(AddressListTest, OfOneTheAnswerIsWhatItIs) {
  AddressList addresses({"a:1"});
  AddressSearch search(&addresses);
  EXPECT_FALSE(search.GoesOn(kNoCoordinator));
  EXPECT_EQ(search.Outcome(), kNoCoordinator);
  EXPECT_EQ(addresses.current(), "a:1");
}

TEST(AddressListTest, TheCoordinatorIsAskedWhereverItIsSaidToBe) {
  std::vector<std::string> asked;
  const auto ask = [&asked](const std::string& server) -> absl::Status {
    asked.push_back(server);
    if (server == "a:1") return kNobody;
    if (server == "b:2") return WithCoordinator(absl::FailedPreconditionError("not I"), "d:4");
    if (server == "d:4") return absl::OkStatus();
    return WithCoordinator(absl::FailedPreconditionError("nor I"), server);
  };
  EXPECT_OK(AskCoordinator({"a:1", "b:2", "c:3"}, ask));
  EXPECT_THAT(asked, ElementsAre("a:1", "b:2", "d:4"));
  asked.clear();
  EXPECT_THAT(AskCoordinator({"c:3"}, ask), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(asked, SizeIs(4)) << "in a circle, but not for ever";
}

TEST(AddressListTest, ARefusalIsNotHiddenBehindOneWhoIsAway) {
  for (const absl::Status& refusal :
       {absl::PermissionDeniedError("revoked"), absl::UnauthenticatedError("who?")}) {
    const auto ask = [&refusal](const std::string& server) -> absl::Status {
      if (server == "a:1") return kNoCoordinator;
      return server == "b:2" ? refusal : kNobody;
    };
    EXPECT_EQ(AskCoordinator({"a:1", "b:2", "c:3"}, ask), refusal);
  }
}

}  // namespace
}  // namespace lodestar::net
