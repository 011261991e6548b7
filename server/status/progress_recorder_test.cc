#include "server/status/progress_recorder.h"

#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <numbers>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

RoundSummary SummaryOf(int64_t round) {
  RoundSummary summary;
  summary.round = Round(round);
  summary.train_loss = 2.5;
  summary.total_samples = 24 * (round + 1);
  summary.samples = 24;
  summary.workers = 2;
  summary.duration = absl::Seconds(1);
  summary.completed_at = absl::UnixEpoch() + absl::Seconds(1 + round);
  summary.trained_time = absl::Seconds(1 + round);
  return summary;
}

TEST(ProgressRecorderTest, MetricsLineIsJsonWithNullForWhatIsUnknown) {
  EXPECT_EQ(MetricsLine(SummaryOf(3), LossUnit::kNats),
            R"({"round":3,"train_loss":2.5,"heldout_loss":null,"heldout_accuracy":null,)"
            R"("train_bits_per_byte":null,"heldout_bits_per_byte":null,)"
            R"("samples":96,"seconds":4.0,"workers":2})");
  RoundSummary text = SummaryOf(3);
  text.train_loss = std::numbers::ln2;
  text.heldout_loss = 2 * std::numbers::ln2;
  EXPECT_THAT(MetricsLine(text, LossUnit::kBitsPerByte),
              testing::HasSubstr(R"("train_bits_per_byte":1.0,"heldout_bits_per_byte":2.0,)"));
}

TEST(ProgressRecorderTest, ProgressLineLeavesOutWhatIsUnknown) {
  RoundSummary summary = SummaryOf(3);
  EXPECT_EQ(ProgressLine(summary, 10, LossUnit::kNats, 24.0),
            "round 3/10  loss 2.5000 nats  24.0 samples/s  2 workers");
  summary.heldout_loss = 2.0;
  summary.workers = 1;
  summary.committed_short = true;
  EXPECT_EQ(ProgressLine(summary, 10, LossUnit::kNats, 0.0),
            "round 3/10  loss 2.5000 nats  held-out 2.0000 nats  1 worker, not all of the round");
}

TEST(ProgressRecorderTest, WritesOneLinePerRound) {
  ProgressRecorder::Config config;
  config.metrics_out = testing::TempDir() + "/metrics.jsonl";
  config.total_rounds = 100;
  {
    ASSERT_OK_AND_ASSIGN(const auto recorder, ProgressRecorder::Create(config));
    for (int64_t round = 5; round < 8; ++round) recorder->OnRoundCommitted(SummaryOf(round));
  }
  std::ifstream file(config.metrics_out);
  std::stringstream content;
  content << file.rdbuf();
  std::string expected;
  for (int64_t round = 5; round < 8; ++round) {
    expected += MetricsLine(SummaryOf(round), LossUnit::kNats) + "\n";
  }
  EXPECT_EQ(content.str(), expected);
}

// What the recorder tells when the disk is full from the first line on; a limit on the size of
// files stands for that. For a process of its own.
std::vector<std::string> FailuresOnAFullDisk() {
  std::signal(SIGXFSZ, SIG_IGN);
  ProgressRecorder::Config config;
  config.metrics_out = testing::TempDir() + "/full.jsonl";
  std::vector<std::string> failures;
  config.on_failure = [&](absl::string_view text) { failures.emplace_back(text); };
  auto recorder = *ProgressRecorder::Create(config);
  const rlimit limit{10, RLIM_INFINITY};
  setrlimit(RLIMIT_FSIZE, &limit);
  for (int64_t round = 0; round < 3; ++round) recorder->OnRoundCommitted(SummaryOf(round));
  recorder.reset();  // writes what is queued
  return failures;
}

TEST(ProgressRecorderTest, AFullDiskIsToldOnce) {
  EXPECT_EXIT(
      {
        const std::vector<std::string> failures = FailuresOnAFullDisk();
        std::exit(failures.size() == 1 && absl::StrContains(failures[0], "full.jsonl") ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(ProgressRecorderTest, RefusesAFileItCannotOpen) {
  ProgressRecorder::Config config;
  config.metrics_out = testing::TempDir() + "/no_such_folder/metrics.jsonl";
  EXPECT_THAT(ProgressRecorder::Create(config),
              StatusIs(absl::StatusCode::kNotFound, testing::HasSubstr("no_such_folder")));
  config.metrics_out = "/dev/null";
  EXPECT_THAT(ProgressRecorder::Create(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::HasSubstr("--metrics_out=/dev/null: ")));
}

}  // namespace
}  // namespace lodestar
