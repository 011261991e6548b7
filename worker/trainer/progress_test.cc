// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/progress.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::trainer {
namespace {

using ::testing::HasSubstr;

const absl::Time kStart = absl::UnixEpoch();

messages::RoundReport Report(int64_t round) {
  messages::RoundReport report;
  report.round = Round(round);
  // These are the losses of this worker's own samples. The progress line must not show them.
  report.loss_sum = 90.0;
  report.num_predictions = 10;
  report.heldout_loss_sum = 90.0;
  report.heldout_predictions = 10;
  report.num_samples = 5;
  report.compute = absl::Seconds(0.75);
  report.communication = absl::Seconds(0.25);
  return report;
}

// Returns the grant that the server gives when `round` of the job's ten rounds are over. `loss` is
// the loss of the last round.
messages::Grant GrantAfter(int64_t round, double loss) {
  messages::Grant grant;
  grant.kind = messages::Grant::Kind::kTrain;
  grant.round = Round(round);
  grant.total_rounds = 10;
  grant.loss.train = loss;
  grant.loss.train_round = Round(round - 1);
  return grant;
}

TEST(ProgressTest, OneLinePerIntervalWithTheJobsLossAndTheWorkersSpeed) {
  Progress progress({.tokens_per_sample = 64});
  progress.Add(kStart + absl::Seconds(1), Report(0));
  EXPECT_EQ(progress.Tell(kStart + absl::Seconds(1), GrantAfter(1, 4.0)), "");
  progress.Add(kStart + absl::Seconds(2), Report(1));
  EXPECT_EQ(progress.Tell(kStart + absl::Seconds(2), GrantAfter(2, 2.0)),
            "round 1/10  loss 2.0000 nats  320 tokens/s  exposed 25 %  ETA 8s");
}

TEST(ProgressTest, ALineInTheMiddleOfARoundTakesNothingFromItsTime) {
  Progress progress({.tokens_per_sample = 64});
  progress.Add(kStart + absl::Seconds(1), Report(0));
  EXPECT_NE(progress.Tell(kStart + absl::Seconds(3), GrantAfter(1, 4.0)), "");
  messages::RoundReport report = Report(1);
  report.communication = absl::Seconds(2.25);
  progress.Add(kStart + absl::Seconds(4), report);
  EXPECT_THAT(progress.Tell(kStart + absl::Seconds(6), GrantAfter(2, 2.0)),
              HasSubstr("  exposed 45 %"));
}

TEST(ProgressTest, ALineNeedsNews) {
  Progress progress({});
  messages::Grant grant;
  grant.kind = messages::Grant::Kind::kWait;
  EXPECT_EQ(progress.Tell(kStart, grant), "");
  EXPECT_EQ(progress.Tell(kStart, GrantAfter(4, 2.0)), "round 3/10  loss 2.0000 nats");
  EXPECT_EQ(progress.Tell(kStart + absl::Hours(1), GrantAfter(4, 2.0)), "");
}

TEST(ProgressTest, EvaluationIsToldAtOnceAndOnce) {
  Progress progress({.interval = absl::Hours(1)});
  progress.Add(kStart, Report(0));
  messages::Grant grant = GrantAfter(1, 4.0);
  EXPECT_EQ(progress.Tell(kStart, grant), "");
  grant.loss.heldout = 1.5;
  grant.loss.heldout_round = Round(0);
  EXPECT_THAT(progress.Tell(kStart, grant), HasSubstr("loss 4.0000 nats  held-out 1.5000 nats"));
  grant.loss.train_round = Round(1);
  EXPECT_EQ(progress.Tell(kStart, grant), "");
}

TEST(ProgressTest, TheEndIsTold) {
  Progress progress({.loss_unit = job::LossUnit::kBitsPerByte, .interval = absl::Hours(1)});
  progress.Add(kStart, Report(9));
  messages::Grant grant = GrantAfter(10, 4.0);
  EXPECT_EQ(progress.Tell(kStart, grant), "");
  grant.kind = messages::Grant::Kind::kDone;
  EXPECT_EQ(progress.Tell(kStart, grant),
            "round 9/10  loss 5.771 bits/byte (4.0000 nats)  5 samples/s  exposed 25 %");
}

TEST(ProgressTest, EvaluatingChangesNeitherTheRateNorTheTimeLeft) {
  Progress progress({.tokens_per_sample = 64});
  progress.Add(kStart + absl::Seconds(1), Report(0));
  messages::RoundReport report = Report(1);
  report.evaluation = absl::Seconds(30);
  report.compute += report.evaluation;
  progress.Add(kStart + absl::Seconds(32), report);
  EXPECT_THAT(progress.Tell(kStart + absl::Seconds(32), GrantAfter(2, 2.0)),
              HasSubstr("320 tokens/s  exposed 25 %  ETA 8s"));
  // The evaluation of round 1 does not count in the window after it.
  progress.Add(kStart + absl::Seconds(34), Report(2));
  EXPECT_THAT(progress.Tell(kStart + absl::Seconds(34), GrantAfter(3, 2.0)), HasSubstr("ETA 14s"));
}

TEST(ProgressTest, ARoundThatGoesBackBeginsTheWindowAnew) {
  Progress progress({.tokens_per_sample = 64, .interval = absl::ZeroDuration()});
  progress.Add(kStart, Report(7));
  progress.Tell(kStart, GrantAfter(8, 2.0));
  progress.Add(kStart + absl::Seconds(1), Report(8));
  progress.Add(kStart + absl::Seconds(2), Report(3));
  progress.Add(kStart + absl::Seconds(3), Report(4));
  EXPECT_THAT(progress.Tell(kStart + absl::Seconds(3), GrantAfter(5, 2.0)),
              HasSubstr("320 tokens/s  exposed 25 %  ETA 5s"));
  // The window has one round, so ETA is computed from the time of that round.
  progress.Add(kStart + absl::Seconds(4), Report(4));
  EXPECT_THAT(progress.Tell(kStart + absl::Seconds(4), GrantAfter(6, 2.0)), HasSubstr("ETA 5s"));
}

TEST(ProgressTest, AnOutageIsNoPartOfTheSpeed) {
  Progress progress({.tokens_per_sample = 64});
  progress.Add(kStart + absl::Seconds(1), Report(0));
  progress.Add(kStart + absl::Seconds(2), Report(1));
  progress.Tell(kStart + absl::Seconds(2), GrantAfter(2, 2.0));
  progress.Add(kStart + absl::Minutes(5), Report(2));
  progress.Add(kStart + absl::Minutes(5) + absl::Seconds(1), Report(3));
  EXPECT_THAT(progress.Tell(kStart + absl::Minutes(5) + absl::Seconds(1), GrantAfter(4, 2.0)),
              HasSubstr("320 tokens/s  exposed 25 %  ETA 6s"));
}

TEST(ProgressTest, RoundsBeforeAWorkerCameAreNotItsSpeed) {
  Progress progress({.tokens_per_sample = 64});
  EXPECT_EQ(progress.Tell(kStart, GrantAfter(5, 2.0)), "round 4/10  loss 2.0000 nats");
  progress.Add(kStart + absl::Seconds(1), Report(5));
  progress.Add(kStart + absl::Seconds(2), Report(6));
  EXPECT_THAT(progress.Tell(kStart + absl::Seconds(2), GrantAfter(7, 2.0)), HasSubstr("ETA 3s"));
}

TEST(ProgressTest, AnEvaluationAloneHasNoRate) {
  Progress progress({});
  messages::RoundReport report = Report(10);
  report.num_samples = 0;
  report.evaluation = report.compute;
  progress.Add(kStart, report);
  messages::Grant grant = GrantAfter(10, 2.0);
  grant.kind = messages::Grant::Kind::kDone;
  grant.loss.heldout = 3.0;
  grant.loss.heldout_round = Round(10);
  EXPECT_EQ(progress.Tell(kStart, grant), "round 10/10  held-out 3.0000 nats");
}

}  // namespace
}  // namespace lodestar::trainer
