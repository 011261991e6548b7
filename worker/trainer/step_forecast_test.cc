// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/step_forecast.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/grant_samples.h"

namespace lodestar::trainer {
namespace {

constexpr int64_t kNumSamples = 100;

messages::Grant TrainingGrant(int64_t round, int64_t first_sample, int64_t num_samples,
                              int local_steps = 1) {
  messages::Grant grant;
  grant.round = Round(round);
  grant.first_sample = first_sample;
  grant.num_samples = num_samples;
  grant.local_steps = local_steps;
  return grant;
}

StepForecast Forecast() { return {.order = data::SampleOrder(/*seed=*/7, kNumSamples)}; }

// Returns the samples of step `step` of `grant`.
std::vector<data::SampleRef> SamplesAt(const messages::Grant& grant, int step) {
  const data::SampleOrder order(/*seed=*/7, kNumSamples);
  const SampleSpan span = SamplesOfStep(grant, step);
  std::vector<data::SampleRef> samples;
  for (int64_t i = 0; i < span.count; ++i) samples.push_back(order.At(span.first + i));
  return samples;
}

TEST(StepForecastTest, ASteadyRosterIsForetold) {
  // The worker is the second of two workers. Each worker gets 8 samples.
  StepForecast forecast = Forecast();
  for (int64_t round = 0; round < 20; ++round) {
    const auto grant_of = [](int64_t k) { return TrainingGrant(k, 16 * k + 8, 8); };
    forecast.OnGrant(grant_of(round));
    forecast.step = 0;
    if (round == 0) continue;
    for (int ahead = 1; ahead <= 10; ++ahead) {
      const std::optional<ExpectedStep> expected = forecast.Expect(ahead);
      ASSERT_TRUE(expected.has_value());
      EXPECT_EQ(expected->rounds_ahead, ahead);
      EXPECT_EQ(expected->samples, SamplesAt(grant_of(round + ahead), 0));
    }
  }
}

TEST(StepForecastTest, BeforeThereAreTwoGrantsTheyFollowEachOther) {
  // This forecast is right for a single worker, and for a worker with its own data.
  StepForecast forecast = Forecast();
  forecast.OnGrant(TrainingGrant(3, 24, 8));
  forecast.step = 0;
  EXPECT_EQ(forecast.Expect(1)->samples, SamplesAt(TrainingGrant(4, 32, 8), 0));
  EXPECT_EQ(forecast.Expect(2)->samples, SamplesAt(TrainingGrant(5, 40, 8), 0));
}

TEST(StepForecastTest, LocalStepsOfTheGrantAtHandAreCertain) {
  StepForecast forecast = Forecast();
  const messages::Grant first = TrainingGrant(0, 0, 11, /*local_steps=*/4);
  const messages::Grant second = TrainingGrant(1, 33, 11, /*local_steps=*/4);
  const messages::Grant third = TrainingGrant(2, 66, 11, /*local_steps=*/4);
  forecast.OnGrant(first);
  forecast.OnGrant(second);
  // The round begins with an evaluation, so its first training step is next.
  EXPECT_EQ(forecast.Expect(1)->samples, SamplesAt(second, 0));
  forecast.step = 1;
  EXPECT_EQ(forecast.Expect(2)->samples, SamplesAt(second, 3));
  EXPECT_EQ(forecast.Expect(2)->rounds_ahead, 0);
  EXPECT_EQ(forecast.Expect(2)->num_steps, 4);
  const ExpectedStep next_round = *forecast.Expect(4);
  EXPECT_EQ(next_round.rounds_ahead, 1);
  EXPECT_EQ(next_round.step, 1);
  EXPECT_EQ(next_round.samples, SamplesAt(third, 1));
}

TEST(StepForecastTest, AChangeOfTheRosterIsKnownByTheSecondGrantAfterIt) {
  StepForecast forecast = Forecast();
  forecast.OnGrant(TrainingGrant(0, 0, 8));
  forecast.OnGrant(TrainingGrant(1, 16, 8));
  // A third worker has joined, which also gets 8 samples.
  forecast.OnGrant(TrainingGrant(2, 32, 8));
  forecast.OnGrant(TrainingGrant(3, 56, 8));
  forecast.step = 0;
  EXPECT_EQ(forecast.Expect(1)->samples, SamplesAt(TrainingGrant(4, 80, 8), 0));
}

TEST(StepForecastTest, AGrantThatIsGivenAgainIsOne) {
  StepForecast forecast = Forecast();
  forecast.OnGrant(TrainingGrant(0, 0, 8));
  forecast.OnGrant(TrainingGrant(1, 16, 8));
  forecast.OnGrant(TrainingGrant(1, 16, 8));
  forecast.step = 0;
  EXPECT_EQ(forecast.Expect(1)->samples, SamplesAt(TrainingGrant(2, 32, 8), 0));
}

TEST(StepForecastTest, AnEvaluationAloneComesAfterTheLastStep) {
  StepForecast forecast = Forecast();
  forecast.OnGrant(TrainingGrant(0, 0, 8, /*local_steps=*/2));
  messages::Grant evaluation;
  evaluation.kind = messages::Grant::Kind::kEvaluate;
  forecast.OnGrant(evaluation);
  EXPECT_EQ(forecast.Expect(1)->samples, SamplesAt(TrainingGrant(1, 8, 8, 2), 0));
}

TEST(StepForecastTest, ServersThatHaveGoneBackAreNoDistance) {
  StepForecast forecast = Forecast();
  forecast.OnGrant(TrainingGrant(9, 72, 8));
  forecast.OnGrant(TrainingGrant(2, 16, 8));
  forecast.step = 0;
  EXPECT_EQ(forecast.Expect(1)->samples, SamplesAt(TrainingGrant(3, 24, 8), 0));
}

TEST(StepForecastTest, NothingIsToldOfNothing) {
  EXPECT_FALSE(Forecast().Expect(1).has_value());
  StepForecast forecast = Forecast();
  forecast.OnGrant(TrainingGrant(0, int64_t{1} << 60, 8));
  EXPECT_TRUE(forecast.Expect(1).has_value());
  EXPECT_FALSE(forecast.Expect(0).has_value());
  forecast.OnGrant(TrainingGrant(1, std::numeric_limits<int64_t>::max() - 10, 8));
  EXPECT_FALSE(forecast.Expect(2).has_value());
}

}  // namespace
}  // namespace lodestar::trainer
