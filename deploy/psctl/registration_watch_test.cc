// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/registration_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lodestar::psctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kStart = absl::FromUnixSeconds(1000);

class RegistrationWatchTest : public ::testing::Test {
 protected:
  RegistrationWatch watch_{{{"worker-0", "h1"}, {"worker-1", "h2"}, {"worker-2", "h2"}}, kStart};
};

TEST_F(RegistrationWatchTest, NamesWorkersThatHaveNotRegisteredOnceAMinute) {
  EXPECT_FALSE(watch_.BeginLook(kStart + absl::Seconds(19)));
  const absl::Time first = kStart + absl::Seconds(20);
  ASSERT_TRUE(watch_.BeginLook(first));
  EXPECT_THAT(watch_.Take({"worker-0", "worker-2"}, first),
              AllOf(HasSubstr("worker-1 on h2"), Not(HasSubstr("worker-0")),
                    Not(HasSubstr("worker-2")), HasSubstr("20s")));
  EXPECT_FALSE(watch_.BeginLook(first + absl::Seconds(59)));
  ASSERT_TRUE(watch_.BeginLook(first + absl::Minutes(1)));
  // A worker that has registered and left does not count as missing.
  EXPECT_THAT(watch_.Take({"worker-2"}, first + absl::Minutes(1)),
              AllOf(HasSubstr("worker-1"), Not(HasSubstr("worker-0"))));
}

TEST_F(RegistrationWatchTest, SaysNothingOnceAllHaveRegistered) {
  const absl::Time first = kStart + absl::Seconds(20);
  ASSERT_TRUE(watch_.BeginLook(first));
  EXPECT_EQ(watch_.Take({"worker-0", "worker-1", "worker-2", "another"}, first), "");
  EXPECT_FALSE(watch_.BeginLook(first + absl::Hours(1)));
}

TEST_F(RegistrationWatchTest, AsksAgainIfTheServerGaveNoAnswer) {
  ASSERT_TRUE(watch_.BeginLook(kStart + absl::Seconds(20)));
  EXPECT_TRUE(watch_.BeginLook(kStart + absl::Seconds(80)));
}

}  // namespace
}  // namespace lodestar::psctl
