// SPDX-License-Identifier: Apache-2.0

#include "common/plan/loss_estimate.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

#include "common/job/outer_step.h"
#include "common/params/encoding.h"
#include "gmock/gmock.h"

namespace lodestar::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t k35Million = 35'000'000;
constexpr int64_t k90Million = 90'000'000;
constexpr int64_t kNano = 800'000;

job::JobSpec DiLoCo(int local_steps) {
  job::JobSpec job;
  job.mode = job::Mode::kLocalSgd;
  job.local_steps = local_steps;
  job.push_encoding = params::Encoding::kInt4;
  job.pull_encoding = params::Encoding::kInt4;
  job.outer_learning_rate = job::kDefaultOuterLearningRate;
  job.outer_momentum = job::kDefaultOuterMomentum;
  return job;
}

LossEstimate Estimate(const job::JobSpec& job, int64_t parameters, int workers,
                      std::optional<int64_t> total_steps = std::nullopt) {
  return EstimateLoss(
      job, {.num_parameters = parameters, .num_workers = workers, .total_steps = total_steps});
}

double Percent(const job::JobSpec& job, int64_t parameters, int workers) {
  return Estimate(job, parameters, workers).percent.value();
}

TEST(LossEstimateTest, SyncCostsWhatRoundingCosts) {
  job::JobSpec job;
  EXPECT_EQ(Percent(job, k35Million, 8), 0.0);
  EXPECT_THAT(Estimate(job, k35Million, 8).reason, HasSubstr("the same as one machine"));
  job.push_encoding = params::Encoding::kInt4;
  EXPECT_NEAR(Percent(job, k35Million, 8), 0.4, 1e-9);
}

// Compares with the table of arXiv:2503.09799. For its smallest model the estimate is exact. For 90
// million parameters, where the estimate interpolates, it is within 0.2 of the published 0.6, 1.45
// and 3.1 %.
TEST(LossEstimateTest, WorkersCostWhatThePublishedTableSays) {
  EXPECT_NEAR(Percent(DiLoCo(30), k35Million, 1), 0.0, 1e-9);
  EXPECT_NEAR(Percent(DiLoCo(30), k35Million, 2), 0.7, 1e-9);
  EXPECT_NEAR(Percent(DiLoCo(30), k35Million, 4), 2.0, 1e-9);
  EXPECT_NEAR(Percent(DiLoCo(30), k35Million, 8), 3.9, 1e-9);
  EXPECT_NEAR(Percent(DiLoCo(30), k90Million, 2), 0.6, 0.2);
  EXPECT_NEAR(Percent(DiLoCo(30), k90Million, 4), 1.45, 0.2);
  EXPECT_NEAR(Percent(DiLoCo(30), k90Million, 8), 3.1, 0.2);
}

TEST(LossEstimateTest, ShortJobsOfLargeModelsAreBetweenWhatWasMeasuredAndPublished) {
  const auto percent = [](int64_t parameters, int64_t steps) {
    return *Estimate(DiLoCo(20), parameters, 4, steps).percent;
  };
  EXPECT_EQ(percent(kNano, 500), percent(kNano, 100'000));
  EXPECT_EQ(percent(k35Million, 500), percent(kNano, 500));
  EXPECT_GT(percent(k35Million, 1000), percent(k35Million, 4000));
  EXPECT_EQ(percent(k35Million, 8000), Percent(DiLoCo(20), k35Million, 4));
  EXPECT_EQ(Estimate(job::JobSpec(), kNano, 2, 500).percent, 0.0);
}

TEST(LossEstimateTest, OuterStepsThatLagOrAreShortCost) {
  const auto percent = [](double rate, double momentum) {
    job::JobSpec job = DiLoCo(20);
    job.outer_learning_rate = rate;
    job.outer_momentum = momentum;
    return *Estimate(job, kNano, 4, 1000).percent;
  };
  EXPECT_GT(percent(0.15, 0.9), percent(0.75, 0.5)) << "of one ratio";
  EXPECT_GT(percent(0.5, 0.5), percent(0.7, 0.5));
  EXPECT_GT(percent(0.4, 0.5), percent(0.5, 0.5)) << "a ratio below 1";
  job::JobSpec average = DiLoCo(20);
  average.outer_optimizer = job::OuterOptimizerKind::kAverage;
  EXPECT_NEAR(*Estimate(average, kNano, 4, 1000).percent, percent(1.0, 0.0), 1e-9);
}

TEST(LossEstimateTest, FineTuningCostsLessThanTrainingFromScratch) {
  job::JobSpec average = DiLoCo(20);
  average.outer_optimizer = job::OuterOptimizerKind::kAverage;
  for (const job::JobSpec& job : {DiLoCo(20), average}) {
    TrainingFacts training = {.num_parameters = kNano, .num_workers = 2, .total_steps = 500};
    const double from_scratch = *EstimateLoss(job, training).percent;
    training.begins_with_trained_weights = true;
    EXPECT_LT(*EstimateLoss(job, training).percent, from_scratch);
  }
}

// Rows of tests/bench/results/local_steps.csv with seed 3. The estimate was not fitted to them.
TEST(LossEstimateTest, WhatWasMeasuredIsAtMostAPointAboveTheForecast) {
  struct Row {
    int workers;
    int64_t steps;
    job::ScheduleKind schedule;
    double rate;  // 0 means that the outer optimizer is average
    double momentum;
    int local_steps;
    double measured;
  };
  constexpr auto kConstant = job::ScheduleKind::kConstant;
  constexpr auto kCosine = job::ScheduleKind::kCosine;
  const Row rows[] = {
      {2, 1000, kConstant, 0.6, 0.9, 8, 19.9},  {2, 1000, kConstant, 0.7, 0.5, 20, -0.1},
      {2, 1000, kConstant, 0, 0, 20, 1.1},      {2, 1000, kCosine, 0.6, 0.9, 8, 18.1},
      {2, 1000, kCosine, 0.7, 0.5, 20, 3.2},    {2, 1000, kCosine, 0, 0, 20, 4.8},
      {2, 500, kConstant, 0.6, 0.9, 8, 13.9},   {2, 500, kConstant, 0.7, 0.5, 20, 0.0},
      {2, 500, kConstant, 0, 0, 20, -0.1},      {4, 1000, kConstant, 0.7, 0.5, 20, 2.2},
      {4, 1000, kConstant, 0, 0, 20, 4.5},      {2, 500, kCosine, 0, 0, 20, 5.2},
      {2, 2000, kConstant, 0.7, 0.5, 20, -1.4}, {2, 2000, kCosine, 0.7, 0.5, 20, 0.8},
      {2, 2000, kCosine, 0, 0, 20, 4.2},        {4, 1000, kCosine, 0.7, 0.5, 20, 5.5},
      {4, 1000, kCosine, 0, 0, 20, 9.8}};
  for (const Row& row : rows) {
    job::JobSpec job;
    job.mode = job::Mode::kLocalSgd;
    job.local_steps = row.local_steps;
    if (row.rate == 0.0) job.outer_optimizer = job::OuterOptimizerKind::kAverage;
    job.outer_learning_rate = row.rate;
    job.outer_momentum = row.momentum;
    job.schedule = {.kind = row.schedule, .peak = 1e-3, .minimum = 1e-4};
    const LossEstimate loss = Estimate(job, kNano, row.workers, row.steps);
    EXPECT_LE(row.measured, *loss.percent + 1.0)
        << row.workers << " workers, " << row.steps << " steps: " << loss.reason;
  }
}

TEST(LossEstimateTest, LongOuterStepsCost) {
  const auto percent = [](double rate, double momentum, int local_steps) {
    job::JobSpec job = DiLoCo(local_steps);
    job.outer_learning_rate = rate;
    job.outer_momentum = momentum;
    return *Estimate(job, kNano, 2, 8000).percent;
  };
  EXPECT_EQ(percent(0.75, 0.5, 20), percent(0.75, 0.5, 18)) << "just safe";
  EXPECT_GT(percent(0.7, 0.9, 20), percent(0.7, 0.8, 20));
  EXPECT_GT(percent(0.7, 0.8, 20), percent(0.75, 0.5, 20));
  // More local steps per window reduce the effect of an outer step that is too long.
  EXPECT_GT(percent(0.7, 0.9, 8), percent(0.7, 0.9, 20));
}

TEST(LossEstimateTest, FewOuterStepsOfALongMomentumCost) {
  const auto percent = [](int64_t total_steps) {
    job::JobSpec job = DiLoCo(72);
    job.outer_momentum = 0.9;
    job.schedule.kind = job::ScheduleKind::kCosine;
    return Estimate(job, k35Million, 2, total_steps);
  };
  EXPECT_THAT(percent(72 * 32).reason, HasSubstr("only 32 outer steps +2.9 %"));
  EXPECT_THAT(percent(100'000).reason, Not(HasSubstr("only")));
  // A job with fewer steps than local_steps makes one outer step.
  EXPECT_THAT(percent(1).reason, HasSubstr("only 1 outer steps"));
}

TEST(LossEstimateTest, GrowsWithWorkersLocalStepsAndOverlap) {
  for (int workers = 1; workers < 20; ++workers) {
    EXPECT_LT(Percent(DiLoCo(30), k35Million, workers),
              Percent(DiLoCo(30), k35Million, workers + 1));
  }
  EXPECT_EQ(Percent(DiLoCo(8), k35Million, 2), Percent(DiLoCo(30), k35Million, 2));
  EXPECT_LT(Percent(DiLoCo(30), k35Million, 2), Percent(DiLoCo(31), k35Million, 2));
  // In arXiv:2501.18512 the loss rose by 0.8 %, from 3.53 to 3.56 nats.
  EXPECT_NEAR(Percent(DiLoCo(100), k35Million, 2) - Percent(DiLoCo(30), k35Million, 2), 0.8, 0.2);
  job::JobSpec hasty = DiLoCo(9);
  EXPECT_TRUE(Estimate(hasty, k35Million, 2).percent.has_value());
  hasty.overlap_steps = 6;
  EXPECT_EQ(Estimate(hasty, k35Million, 2).percent, std::nullopt);
  EXPECT_EQ(Estimate(DiLoCo(7), k35Million, 2).percent, std::nullopt);
  job::JobSpec overlapped = DiLoCo(40);
  overlapped.overlap_steps = 10;
  const double known = Percent(overlapped, k35Million, 2);
  EXPECT_NEAR(known - Percent(DiLoCo(40), k35Million, 2), 0.2, 1e-9);
  overlapped.overlap_steps = 30;
  EXPECT_GT(Percent(overlapped, k35Million, 2), known);
}

TEST(LossEstimateTest, OverlappedRoundsAndSparseContributionsAreDear) {
  job::JobSpec rounds = DiLoCo(20);
  rounds.overlap_rounds = true;
  EXPECT_GT(Percent(rounds, k35Million, 2), 3.0);
  EXPECT_GT(Percent(rounds, k35Million, 4), 16.0);
  EXPECT_EQ(Percent(rounds, k35Million, 1), Percent(DiLoCo(20), k35Million, 1));
  job::JobSpec sparse = DiLoCo(20);
  sparse.push_encoding = params::Encoding::TopK(256, 4);
  sparse.topk_divisor = job::TopKDivisor::kSenders;
  const double rich = Percent(sparse, k35Million, 2);
  EXPECT_GT(rich, Percent(DiLoCo(20), k35Million, 2));
  sparse.push_encoding = params::Encoding::TopK(64, 2);
  const double poor = Percent(sparse, k35Million, 2);
  EXPECT_GT(poor, rich);
  sparse.topk_divisor = job::TopKDivisor::kWorkers;
  EXPECT_GT(Percent(sparse, k35Million, 2), poor);
}

TEST(LossEstimateTest, WhatNobodyMeasuredIsUnknown) {
  job::JobSpec job;
  job.mode = job::Mode::kAsync;
  EXPECT_FALSE(Estimate(job, k35Million, 4).percent.has_value());
  EXPECT_THAT(Estimate(job, k35Million, 4).reason, HasSubstr("3 updates old"));
  EXPECT_EQ(Percent(job, k35Million, 1), 0.0);
  job.mode = job::Mode::kSync;
  job.push_encoding = params::Encoding::TopK(64, 2);
  EXPECT_FALSE(Estimate(job, k35Million, 4).percent.has_value());
}

}  // namespace
}  // namespace lodestar::plan
