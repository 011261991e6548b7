// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/rounds/job_progress.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace lodestar::rounds {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

RoundSummary SummaryOf(int64_t round, absl::Time completed_at) {
  RoundSummary summary;
  summary.round = Round(round);
  summary.train_loss = 2.0 + static_cast<double>(round);
  summary.samples = 6;
  summary.completed_at = completed_at;
  return summary;
}

// Returns the progress after three rounds of one second each.
JobProgress AfterThreeRounds() {
  JobProgress progress;
  progress.OnOpened(kStart);
  for (int64_t round = 0; round < 3; ++round) {
    progress.OnRound(SummaryOf(round, kStart + absl::Seconds(1 + round)));
  }
  return progress;
}

JobProgress::Pace PaceOf(const JobProgress& progress, const JobProgress::Outlook& outlook) {
  return progress.PaceOf(outlook, kStart + absl::Seconds(3));
}

TEST(JobProgressTest, SpeedsAreOfAJobThatTrains) {
  const JobProgress progress = AfterThreeRounds();
  const JobProgress::Pace training =
      PaceOf(progress, {.remaining_rounds = 4, .tokens_per_sample = 64, .is_training = true});
  EXPECT_NEAR(training.samples_per_second, 6.0, 1e-9);
  EXPECT_NEAR(training.tokens_per_second, 384.0, 1e-6);
  EXPECT_NEAR(absl::ToDoubleSeconds(*training.eta), 4.0, 1e-6);
  EXPECT_EQ(progress.loss().train, 4.0);
  const JobProgress::Pace waiting =
      PaceOf(progress, {.remaining_rounds = 4, .tokens_per_sample = 64, .is_training = false});
  EXPECT_EQ(waiting.samples_per_second, 0.0);
  EXPECT_EQ(waiting.tokens_per_second, 0.0);
  EXPECT_FALSE(waiting.eta.has_value());
}

TEST(JobProgressTest, SamplesOfOneTokenAreNoTokens) {
  EXPECT_EQ(
      PaceOf(AfterThreeRounds(), {.tokens_per_sample = 1, .is_training = true}).tokens_per_second,
      0.0);
}

TEST(JobProgressTest, TheLastMetricOfEachNameIsShownAndTheOldestMakesRoom) {
  JobProgress progress;
  RoundSummary summary = SummaryOf(1, kStart);
  summary.metrics = {{"old", 1.0}};
  progress.OnRound(summary);
  summary = SummaryOf(2, kStart);
  for (size_t i = 0; i + 1 < messages::kMaxMetricsOfRound; ++i)
    summary.metrics[absl::StrCat("m", i)] = 2.0;
  summary.metrics_dropped = 3;
  progress.OnRound(summary);
  EXPECT_EQ(progress.metrics().at("old").round, Round(1));
  summary = SummaryOf(3, kStart);
  summary.metrics = {{"m0", 4.0}, {"new", 5.0}};
  summary.metrics_dropped = 1;
  progress.OnRound(summary);
  EXPECT_EQ(progress.metrics().size(), messages::kMaxMetricsOfRound);
  EXPECT_EQ(progress.metrics().count("old"), 0);
  EXPECT_EQ(progress.metrics().at("m0").value, 4.0);
  EXPECT_EQ(progress.metrics().at("m1").value, 2.0);
  EXPECT_EQ(progress.metrics().at("new").round, Round(3));
  EXPECT_EQ(progress.metrics_dropped(), 4);
}

TEST(JobProgressTest, ARestartGoesOnWithLossAndTime) {
  const JobProgress before = AfterThreeRounds();
  EXPECT_EQ(before.trained_time(), absl::Seconds(3));
  JobProgress after;
  after.Restore(before.Export());
  EXPECT_EQ(after.loss(), before.loss());
  // The time that the server was away, or had no workers, is not counted.
  const absl::Time reopened_at = kStart + absl::Hours(1);
  after.OnOpened(reopened_at);
  after.OnRound(SummaryOf(3, reopened_at + absl::Seconds(2)));
  EXPECT_EQ(after.trained_time(), absl::Seconds(5));
  EXPECT_EQ(after.loss().train_round, Round(3));
}

}  // namespace
}  // namespace lodestar::rounds
