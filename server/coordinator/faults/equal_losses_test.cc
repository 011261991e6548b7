// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/faults/equal_losses.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "common/runtime/ids.h"

namespace lodestar::faults {
namespace {

constexpr WorkerId kA(1), kB(2), kC(3);

class EqualLossesTest : public testing::Test {
 protected:
  // Reports `losses` of the worker for rounds from `first` on. Returns what the last report found.
  std::optional<WorkerId> Report(WorkerId worker, int64_t first,
                                 const std::vector<double>& losses) {
    std::optional<WorkerId> found;
    for (const double loss : losses) found = found_.OnReport(worker, Round(first++), loss);
    return found;
  }

  EqualLosses found_;
};

TEST_F(EqualLossesTest, EqualLossesOfThreeRoundsAreFound) {
  EXPECT_EQ(Report(kA, 4, {2.5, 2.25, 2.125}), std::nullopt);
  EXPECT_EQ(Report(kB, 4, {2.5, 2.25}), std::nullopt);
  EXPECT_EQ(Report(kB, 6, {2.125}), kA);
}

TEST_F(EqualLossesTest, ReportsOfWorkersMayAlternate) {
  for (int64_t round = 0; round < 3; ++round) {
    const double loss = 3.0 - static_cast<double>(round);
    EXPECT_EQ(Report(kA, round, {loss}), std::nullopt);
    EXPECT_EQ(Report(kB, round, {loss}), round == 2 ? std::optional(kA) : std::nullopt);
    EXPECT_EQ(Report(kC, round, {loss}), round == 2 ? std::optional(kA) : std::nullopt);
  }
}

TEST_F(EqualLossesTest, OneDifferenceInThreeRoundsIsEnough) {
  Report(kA, 0, {2.5, 2.25, 2.125});
  EXPECT_EQ(Report(kB, 0, {2.5, 2.26, 2.125}), std::nullopt);
}

TEST_F(EqualLossesTest, LossesThatDoNotChangeDoNotCount) {
  Report(kA, 0, {2.5, 2.5, 2.5, 2.5});
  EXPECT_EQ(Report(kB, 0, {2.5, 2.5, 2.5, 2.5}), std::nullopt);
  Report(kA, 4, {1.0, 0.0, 1.0, 0.0});
  EXPECT_EQ(Report(kB, 4, {1.0, 0.0, 1.0, 0.0}), std::nullopt);
}

TEST_F(EqualLossesTest, RoundsMustFollowEachOther) {
  Report(kA, 1, {2.5, 2.25, 2.125});
  Report(kB, 0, {2.5});
  EXPECT_EQ(Report(kB, 2, {2.25, 2.125}), std::nullopt);
}

TEST_F(EqualLossesTest, LossesOfOtherRoundsAreNotCompared) {
  Report(kA, 0, {2.5, 2.25, 2.125});
  EXPECT_EQ(Report(kB, 1, {2.5, 2.25, 2.125}), std::nullopt);
}

TEST_F(EqualLossesTest, WorkerThatRepeatsItsRoundsAfterARollBackIsNotComparedWithItself) {
  Report(kA, 0, {2.5, 2.25, 2.125});
  EXPECT_EQ(Report(kA, 0, {2.5, 2.25, 2.125}), std::nullopt);
}

TEST_F(EqualLossesTest, ForgottenWorkersAreNotFound) {
  Report(kA, 0, {2.5, 2.25, 2.125});
  found_.Forget(kA);
  EXPECT_EQ(Report(kB, 0, {2.5, 2.25, 2.125}), std::nullopt);
  EXPECT_EQ(Report(kC, 0, {2.5, 2.25, 2.125}), kB);
  found_.ForgetAll();
  EXPECT_EQ(Report(kA, 0, {2.5, 2.25, 2.125}), std::nullopt);
}

}  // namespace
}  // namespace lodestar::faults
