// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/window_end.h"

#include <optional>

#include "gtest/gtest.h"

namespace lodestar::trainer {
namespace {

constexpr absl::Duration kSecond = absl::Seconds(1);

RestOfWindow Rest() {
  return {.steps = 80, .step = kSecond, .handing_in = 2 * kSecond, .left = 104 * kSecond};
}

TEST(RestOfWindowTest, FitsIfStepsWithAQuarterMoreAndTwiceTheHandingInDo) {
  EXPECT_TRUE(FitsIn(Rest()));
  RestOfWindow rest = Rest();
  rest.left -= absl::Milliseconds(1);
  EXPECT_FALSE(FitsIn(rest));
  rest = Rest();
  ++rest.steps;
  EXPECT_FALSE(FitsIn(rest));
  rest = Rest();
  rest.step += absl::Milliseconds(1);
  EXPECT_FALSE(FitsIn(rest));
  rest = Rest();
  rest.handing_in += absl::Milliseconds(1);
  EXPECT_FALSE(FitsIn(rest));
}

TEST(RestOfWindowTest, HandingInIsGivenASecondHoweverFastItWas) {
  RestOfWindow rest = {.steps = 0, .left = kSecond};
  EXPECT_TRUE(FitsIn(rest));
  rest.left -= absl::Nanoseconds(1);
  EXPECT_FALSE(FitsIn(rest));
}

TEST(RestOfWindowTest, WithoutTimeOrWithoutAMeasuredStepNothingFits) {
  EXPECT_FALSE(FitsIn({.steps = 1, .step = absl::ZeroDuration(), .left = absl::ZeroDuration()}));
  EXPECT_FALSE(
      FitsIn({.steps = 1, .step = absl::InfiniteDuration(), .left = absl::Hours(24 * 365)}));
}

class WindowEndTest : public testing::Test {
 protected:
  static messages::Grant GrantOf(int64_t round) {
    messages::Grant grant;
    grant.round = Round(round);
    grant.local_steps = 100;
    grant.num_samples = 1600;
    return grant;
  }
  bool IsDue(int step) { return end_.IsDue(GrantOf(3), step); }

  // The time that is left. If it is set, the worker was told to stop.
  std::optional<absl::Duration> left_;
  WindowEnd end_{[this] { return left_.has_value(); }, [this] { return *left_; }};
};

TEST_F(WindowEndTest, IsNotDueBeforeAStop) {
  end_.OnStep(absl::Hours(1), /*waited=*/false);
  EXPECT_FALSE(IsDue(1));
}

TEST_F(WindowEndTest, IsDueOnceTheRestDoesNotFitAnyMore) {
  end_.OnStep(kSecond, /*waited=*/false);
  // This is enough time for 40 steps with their margin, and for one second of handing in.
  left_ = 51 * kSecond;
  EXPECT_FALSE(IsDue(60));
  EXPECT_TRUE(IsDue(59));
  // One step that is slower than the earlier steps changes the decision at once.
  end_.OnStep(2 * kSecond, /*waited=*/false);
  EXPECT_TRUE(IsDue(60));
  EXPECT_FALSE(IsDue(80));
  EXPECT_FALSE(IsDue(100)) << "there is no rest";
}

TEST_F(WindowEndTest, ASlowStepIsForgottenAndOneThatWaitedForWeightsCountsOnlyAlone) {
  left_ = 51 * kSecond;
  EXPECT_TRUE(IsDue(60)) << "nothing is measured";
  end_.OnStep(2 * kSecond, /*waited=*/true);
  EXPECT_TRUE(IsDue(60));
  end_.OnStep(2 * kSecond, /*waited=*/false);
  EXPECT_TRUE(IsDue(60));
  for (int i = 0; i < 8; ++i) end_.OnStep(kSecond, /*waited=*/false);
  EXPECT_FALSE(IsDue(60));
}

TEST_F(WindowEndTest, HandingInIsThoughtToTakeWhatPullingTookUntilItWasMeasured) {
  end_.OnStep(kSecond, /*waited=*/false);
  left_ = 70 * kSecond;
  end_.OnPulled(11 * kSecond);
  EXPECT_TRUE(IsDue(60));
  end_.OnHandedIn(10 * kSecond);
  EXPECT_FALSE(IsDue(60));
  end_.OnPulled(20 * kSecond);
  EXPECT_FALSE(IsDue(60));
  end_.OnHandedIn(11 * kSecond);
  EXPECT_TRUE(IsDue(60));
}

}  // namespace
}  // namespace lodestar::trainer
