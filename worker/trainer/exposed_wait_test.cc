// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/exposed_wait.h"

#include <memory>

#include "absl/time/time.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "kernels/cuda/testing/emulated_device.h"
#include "kernels/factory/device_factory.h"

namespace lodestar::trainer {
namespace {

TEST(ExposedWaitTest, WhereOperationsRunInlineTheHostsWaitIsWhatIsExposed) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  SimulatedClock clock;
  ExposedWait wait(cpu.get(), &clock);
  for (int i = 1; i <= 2; ++i) {
    clock.AdvanceTime(absl::Seconds(5));
    wait.Begin();
    clock.AdvanceTime(absl::Seconds(i));
    wait.End();
    EXPECT_EQ(*wait.Total(), absl::Seconds(i * (i + 1) / 2));
  }
}

TEST(ExposedWaitTest, WhatWasBegunAndGivenUpCountsForNothing) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  SimulatedClock clock;
  ExposedWait wait(cpu.get(), &clock);
  wait.Begin();
  clock.AdvanceTime(absl::Seconds(5));
  EXPECT_EQ(*wait.Total(), absl::ZeroDuration());
  wait.Begin();
  clock.AdvanceTime(absl::Seconds(1));
  wait.End();
  EXPECT_EQ(*wait.Total(), absl::Seconds(1));
}

class ExposedOnACardTest : public testing::Test {
 protected:
  ~ExposedOnACardTest() override { emulator::ClearStickyError(); }

  const std::unique_ptr<kernels::Device> card_ = cuda::MakeEmulatedDevice({}, {});
  SimulatedClock clock_;
  ExposedWait wait_{card_.get(), &clock_};
};

TEST_F(ExposedOnACardTest, TheCardsClockTells) {
  wait_.Begin();
  clock_.AdvanceTime(absl::Seconds(7));
  emulator::PassTime(2e6);
  wait_.End();
  EXPECT_NEAR(absl::ToDoubleSeconds(*wait_.Total()), 2.0, 1e-3);
}

// Tests a round with more waits than the device stores event times for.
TEST_F(ExposedOnACardTest, WhatTheCardHasForgottenIsAsLongAsTheHostWaited) {
  constexpr int kWaits = 400;
  for (int i = 0; i < kWaits; ++i) {
    wait_.Begin();
    clock_.AdvanceTime(absl::Seconds(1));
    wait_.End();
  }
  const absl::StatusOr<absl::Duration> total = wait_.Total();
  ASSERT_OK(total);
  EXPECT_NEAR(absl::ToDoubleSeconds(*total), kWaits - 256, 1e-3) << "of 256 the card has no time";
}

TEST_F(ExposedOnACardTest, AFailureOfTheDeviceIsReported) {
  wait_.Begin();
  wait_.End();
  const kernels::Buf vector = {*card_->Allocate(64), kernels::DType::kF32, 16};
  emulator::FailLaunchAfter(0);
  card_->Fill(vector, 1.0);
  wait_.Begin();
  wait_.End();
  EXPECT_FALSE(wait_.Total().ok());
  card_->Release(vector.data);
}

}  // namespace
}  // namespace lodestar::trainer
