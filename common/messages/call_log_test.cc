// SPDX-License-Identifier: Apache-2.0

#include "common/messages/call_log.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/simulated_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::messages {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const CallFacts kJoin = {.call = "Join",
                         .request = "3fa9c1d2-17",
                         .name = "a",
                         .life = WorkerLife{WorkerId(1), Incarnation(5)},
                         .round = Round(7),
                         .peer = "ipv4:10.0.0.1:40312"};

class CallLogTest : public testing::Test {
 protected:
  ~CallLogTest() override { logging::InitLogging("test", logging::LogLevel::kInfo); }

  SimulatedClock clock_;
  std::vector<std::string> lines_;
  CallLog log_{
      &clock_, [this](logging::LogLevel level, absl::string_view line) {
        lines_.push_back(absl::StrCat(level == logging::LogLevel::kDebug ? "debug " : "", line));
      }};
};

TEST(CallTextTest, HasWhatIsKnownAndNothingOfPeersButWords) {
  EXPECT_EQ(CallText(kJoin),
            "call=Join request=3fa9c1d2-17 name=a worker=1 incarnation=5 round=7 "
            "peer=ipv4:10.0.0.1:40312");
  EXPECT_EQ(CallText({.call = "Register", .request = "x\nworker=9", .name = "a b"}),
            "call=Register request=x?worker?9 name=a?b");
}

TEST_F(CallLogTest, AFailureIsTold) {
  log_.Note(kJoin, absl::AbortedError("this life\nis over"));
  EXPECT_THAT(lines_, ElementsAre("call failed call=Join request=3fa9c1d2-17 name=a worker=1 "
                                  "incarnation=5 round=7 peer=ipv4:10.0.0.1:40312 "
                                  "reason=ABORTED: this life\\nis over"));
}

TEST_F(CallLogTest, SuccessAndWhatWasCancelledAreForDebugging) {
  log_.Note({.call = "Join"}, absl::OkStatus());
  log_.Note({.call = "Join"}, absl::CancelledError("replaced"));
  EXPECT_THAT(lines_, IsEmpty());
  logging::InitLogging("test", logging::LogLevel::kDebug);
  log_.Note({.call = "Join"}, absl::OkStatus());
  log_.Note({.call = "Join"}, absl::CancelledError("replaced"));
  EXPECT_THAT(lines_, ElementsAre("debug call answered call=Join",
                                  "debug call failed call=Join reason=CANCELLED: replaced"));
}

TEST_F(CallLogTest, ManyFailuresFillNoDiskAndAreCounted) {
  for (int i = 0; i < 1000; ++i) log_.Note(kJoin, absl::AbortedError("over"));
  EXPECT_EQ(lines_.size(), CallQuota::kMostAtOnce);
  clock_.AdvanceTime(CallQuota::kPerLine);
  log_.Note(kJoin, absl::AbortedError("over"));
  log_.Note(kJoin, absl::AbortedError("over"));
  ASSERT_EQ(lines_.size(), CallQuota::kMostAtOnce + 1);
  EXPECT_THAT(lines_.back(),
              ::testing::HasSubstr(absl::StrCat("(", 1000 - CallQuota::kMostAtOnce,
                                                " earlier failed calls are not in the log")));
  clock_.AdvanceTime(absl::Hours(1));
  for (int i = 0; i < 1000; ++i) log_.Note(kJoin, absl::AbortedError("over"));
  EXPECT_EQ(lines_.size(), 2 * CallQuota::kMostAtOnce + 1) << "silence gives no more room";
}

TEST(CallQuotaTest, AClockThatIsSetBackSilencesNothing) {
  CallQuota quota;
  const absl::Time noon = absl::UnixEpoch() + absl::Hours(12);
  EXPECT_TRUE(quota.Take(noon).has_value());
  EXPECT_TRUE(quota.Take(noon - absl::Hours(1)).has_value());
}

}  // namespace
}  // namespace lodestar::messages
