#include "worker/trainer/progress.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;

RoundReport Report(int64_t round, double loss) {
  RoundReport report;
  report.round = Round(round);
  report.loss_sum = 10.0 * loss;
  report.num_predictions = 10;
  report.num_samples = 5;
  report.compute = absl::Seconds(0.75);
  report.communication = absl::Seconds(0.25);
  return report;
}

TEST(ProgressTest, OneLinePerIntervalWithMeansOverIt) {
  Progress progress(/*tokens_per_sample=*/64, absl::Seconds(2));
  const absl::Time start = absl::UnixEpoch();
  EXPECT_EQ(progress.Add(start + absl::Seconds(1), Report(0, 4.0), 10), "");
  const std::string line = progress.Add(start + absl::Seconds(2), Report(1, 2.0), 10);
  EXPECT_THAT(line, HasSubstr("round 2/10"));
  EXPECT_THAT(line, HasSubstr("loss 3.0000"));
  EXPECT_THAT(line, HasSubstr("320 tokens/s"));
  EXPECT_THAT(line, HasSubstr("waiting 25 %"));
  EXPECT_THAT(line, HasSubstr("ETA 8s"));
}

TEST(ProgressTest, EvaluationIsToldAtOnce) {
  Progress progress(1, absl::Hours(1));
  RoundReport report = Report(0, 4.0);
  report.heldout_predictions = 4;
  report.heldout_loss_sum = 6.0;
  EXPECT_THAT(progress.Add(absl::UnixEpoch(), report, 10), HasSubstr("held-out 1.5000"));
}

TEST(ProgressTest, EvaluatingChangesNeitherTheRateNorTheTimeLeft) {
  Progress progress(/*tokens_per_sample=*/64, absl::Seconds(2));
  const absl::Time start = absl::UnixEpoch();
  EXPECT_EQ(progress.Add(start + absl::Seconds(1), Report(0, 4.0), 10), "");
  RoundReport report = Report(1, 2.0);
  report.heldout_predictions = 4;
  report.evaluation = absl::Seconds(30);
  report.compute += report.evaluation;
  const std::string line = progress.Add(start + absl::Seconds(32), report, 10);
  EXPECT_THAT(line, HasSubstr("320 tokens/s  waiting 25 %  ETA 8s"));
  // The next window starts without it.
  EXPECT_THAT(progress.Add(start + absl::Seconds(34), Report(2, 2.0), 10), HasSubstr("ETA 14s"));
}

TEST(ProgressTest, AnEvaluationAloneHasNoRate) {
  Progress progress(1, absl::Hours(1));
  RoundReport report = Report(10, 4.0);
  report.num_samples = 0;
  report.num_predictions = 0;
  report.heldout_predictions = 4;
  report.evaluation = report.compute;
  EXPECT_EQ(progress.Add(absl::UnixEpoch(), report, 10), "round 10/10  held-out 0.0000");
}

}  // namespace
}  // namespace lodestar
