// SPDX-License-Identifier: Apache-2.0

#include "server/status/progress_recorder.h"

#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numbers>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/logging/log_tail.h"
#include "common/logging/logging.h"
#include "common/runtime/status_macros.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace lodestar::status {
namespace {

rounds::RoundSummary SummaryOf(int64_t round) {
  rounds::RoundSummary summary;
  summary.round = Round(round);
  summary.total_rounds = 10;
  summary.train_loss = 2.5;
  summary.total_samples = 24 * (round + 1);
  summary.samples = 24;
  summary.workers = 2;
  summary.duration = absl::Seconds(1);
  summary.completed_at = absl::UnixEpoch() + absl::Seconds(1 + round);
  summary.trained_time = absl::Seconds(1 + round);
  summary.worker_times = {.compute = absl::Milliseconds(750),
                          .communication = absl::Milliseconds(125),
                          .wait = absl::Milliseconds(500)};
  return summary;
}

TEST(ProgressRecorderTest, MetricsLineIsJsonWithNullForWhatIsUnknown) {
  EXPECT_EQ(MetricsLine(SummaryOf(3), job::LossUnit::kNats),
            R"({"round":3,"train_loss":2.5,"heldout_loss":null,"heldout_accuracy":null,)"
            R"("train_bits_per_byte":null,"heldout_bits_per_byte":null,)"
            R"("samples":96,"seconds":4.0,"workers":2,)"
            R"("compute_seconds":0.75,"communication_seconds":0.125,"wait_seconds":0.5})");
  rounds::RoundSummary told = SummaryOf(3);
  told.metrics = {{"grad_norm", 1.5}, {"lr", 0.25}};
  EXPECT_THAT(MetricsLine(told, job::LossUnit::kNats),
              testing::EndsWith(R"("wait_seconds":0.5,"metrics":{"grad_norm":1.5,"lr":0.25}})"));
  rounds::RoundSummary text = SummaryOf(3);
  text.train_loss = std::numbers::ln2;
  text.heldout_loss = 2 * std::numbers::ln2;
  EXPECT_THAT(MetricsLine(text, job::LossUnit::kBitsPerByte),
              testing::HasSubstr(R"("train_bits_per_byte":1.0,"heldout_bits_per_byte":2.0,)"));
}

TEST(ProgressRecorderTest, ProgressLineLeavesOutWhatIsUnknown) {
  rounds::RoundSummary summary = SummaryOf(3);
  EXPECT_EQ(ProgressLine(summary, job::LossUnit::kNats, 24.0),
            "round 3/10  loss 2.5000 nats  24.0 samples/s  2 workers");
  summary.heldout_loss = 2.0;
  summary.workers = 1;
  summary.committed_short = true;
  EXPECT_EQ(ProgressLine(summary, job::LossUnit::kNats, 0.0),
            "round 3/10  loss 2.5000 nats  held-out 2.0000 nats  1 worker, completed without some "
            "workers");
}

TEST(ProgressRecorderTest, WritesOneLinePerRound) {
  ProgressRecorder::Config config;
  config.metrics_out = testing::TempDir() + "/metrics.jsonl";
  {
    ASSERT_OK_AND_ASSIGN(const auto recorder, ProgressRecorder::Create(config));
    for (int64_t round = 5; round < 8; ++round) recorder->Note(SummaryOf(round));
  }
  std::ifstream file(config.metrics_out);
  std::stringstream content;
  content << file.rdbuf();
  std::string expected;
  for (int64_t round = 5; round < 8; ++round) {
    expected += MetricsLine(SummaryOf(round), job::LossUnit::kNats) + "\n";
  }
  EXPECT_EQ(content.str(), expected);
}

// The log gets lines for rounds 0 and 2, and for the last round, which is always logged. The last
// round comes 1 ms after round 2. So its rate is computed over the time since round 0: 72 samples
// in 2 seconds.
TEST(ProgressRecorderTest, TheRateOfALineIsThatOfATimeThatTells) {
  logging::LogTail tail;
  logging::KeepLog(&tail);
  {
    ASSERT_OK_AND_ASSIGN(const auto recorder, ProgressRecorder::Create({}));
    for (const int64_t round : {0, 1, 2}) recorder->Note(SummaryOf(round));
    rounds::RoundSummary last = SummaryOf(9);
    last.total_samples = SummaryOf(2).total_samples + 24;
    last.completed_at = SummaryOf(2).completed_at + absl::Milliseconds(1);
    recorder->Note(last);
  }
  logging::KeepLog(nullptr);
  std::vector<std::string> lines;
  for (const logging::LogLineRecord& line : tail.Read({}).lines) lines.push_back(line.text);
  EXPECT_THAT(lines, testing::ElementsAre(testing::HasSubstr("24.0 samples/s"),
                                          testing::HasSubstr("24.0 samples/s"),
                                          testing::HasSubstr("36.0 samples/s")));
}

class MetricsFileTest : public testing::Test {
 protected:
  MetricsFileTest() : path_(testing::TempDir() + "/goes_on.jsonl") {
    for (const char* suffix : {"", ".1", ".2"}) std::remove((path_ + suffix).c_str());
  }

  static std::string Lines(int64_t begin, int64_t end) {
    std::string lines;
    for (int64_t round = begin; round < end; ++round) {
      lines += MetricsLine(SummaryOf(round), job::LossUnit::kNats) + "\n";
    }
    return lines;
  }
  static coordinator::RestoredPoint PointOf(int64_t next_round) {
    return {Round(next_round), 24 * next_round, /*is_evaluated=*/false};
  }
  void Write(const std::string& content) const { std::ofstream(path_) << content; }
  static std::string ContentOf(const std::string& path) {
    std::ifstream file(path);
    std::stringstream content;
    content << file.rdbuf();
    return content.str();
  }
  // Acts like a process that goes on from `point` and then writes the line of that round.
  absl::StatusOr<std::string> GoOn(const coordinator::RestoredPoint& point) const {
    ASSIGN_OR_RETURN(MetricsFile file, MetricsFile::Open(path_));
    ASSIGN_OR_RETURN(const MetricsFile::Change done, file.GoOnFrom(point));
    const int64_t round = point.next_round.value();
    RETURN_IF_ERROR(file.Append(MetricsLine(SummaryOf(round), job::LossUnit::kNats)));
    return done.text;
  }

  const std::string path_;
};

TEST_F(MetricsFileTest, RoundsThatComeAgainAreThereOnce) {
  Write(Lines(0, 8) + R"({"round":8,"train_lo)");  // as left by kill -9
  EXPECT_THAT(
      GoOn(PointOf(5)),
      IsOkAndHolds(testing::HasSubstr("3 lines less, because rounds from 5 on are repeated")));
  EXPECT_EQ(ContentOf(path_), Lines(0, 6));
  EXPECT_THAT(GoOn(PointOf(6)), IsOkAndHolds(""));
  EXPECT_EQ(ContentOf(path_), Lines(0, 7));
}

TEST_F(MetricsFileTest, AnotherRunIsKeptUnderAnotherName) {
  Write(Lines(0, 3));
  EXPECT_THAT(GoOn(PointOf(0)),
              IsOkAndHolds(testing::HasSubstr("which are now in " + path_ + ".1")));
  EXPECT_EQ(ContentOf(path_), Lines(0, 1));
  EXPECT_EQ(ContentOf(path_ + ".1"), Lines(0, 3));
  // This run has trained 7 samples before round 1. The file says 24.
  coordinator::RestoredPoint other = PointOf(1);
  other.trained_samples = 7;
  EXPECT_THAT(GoOn(other), IsOkAndHolds(testing::HasSubstr("which are now in " + path_ + ".2")));
  EXPECT_EQ(ContentOf(path_), Lines(1, 2));
}

TEST_F(MetricsFileTest, RunOfAsManySamplesWithAnotherLossIsKeptUnderAnotherName) {
  Write(Lines(0, 8));
  coordinator::RestoredPoint point = PointOf(5);
  point.loss.train = SummaryOf(4).train_loss;
  point.loss.train_round = Round(4);
  EXPECT_OK(GoOn(point));
  EXPECT_EQ(ContentOf(path_), Lines(0, 6));
  point.loss.train = *SummaryOf(4).train_loss + 0.25;
  EXPECT_OK(GoOn(point));
  EXPECT_EQ(ContentOf(path_), Lines(5, 6));
  EXPECT_EQ(ContentOf(path_ + ".1"), Lines(0, 6));
}

TEST_F(MetricsFileTest, FileThatAnotherJobWritesIsNotOpened) {
  ASSERT_OK_AND_ASSIGN(MetricsFile file, MetricsFile::Open(path_));
  EXPECT_THAT(GoOn(PointOf(0)),
              StatusIs(absl::StatusCode::kAlreadyExists, testing::HasSubstr(path_)));
  EXPECT_EQ(ContentOf(path_), "");
}

TEST_F(MetricsFileTest, WhatThisProcessHasWrittenIsItsOwnRunWhereverItGoesBackTo) {
  ASSERT_OK_AND_ASSIGN(MetricsFile file, MetricsFile::Open(path_));
  ASSERT_OK(file.GoOnFrom(PointOf(0)).status());
  for (int64_t round = 0; round < 3; ++round) {
    ASSERT_OK(file.Append(MetricsLine(SummaryOf(round), job::LossUnit::kNats)));
  }
  ASSERT_OK_AND_ASSIGN(const MetricsFile::Change change, file.GoOnFrom(PointOf(0)));
  EXPECT_THAT(change.text,
              testing::HasSubstr("3 lines less, because rounds from 0 on are repeated"));
  EXPECT_FALSE(change.was_another_run);
  EXPECT_EQ(ContentOf(path_), "");
}

TEST_F(MetricsFileTest, AsynchronousRoundsThatWereUnderWayAtTheCheckpointAreCut) {
  coordinator::RestoredPoint point = PointOf(2);
  point.is_in_order = false;
  point.trained_samples = 0;  // neither grant had been reported
  Write(Lines(0, 4));
  EXPECT_THAT(GoOn(point), IsOkAndHolds(testing::HasSubstr("4 lines less")));
  EXPECT_EQ(ContentOf(path_), Lines(2, 3));
  point = PointOf(4);
  point.is_in_order = false;
  point.trained_samples = 48;
  Write(Lines(0, 4));
  EXPECT_THAT(GoOn(point), IsOkAndHolds(testing::HasSubstr("2 lines less")));
  EXPECT_EQ(ContentOf(path_), Lines(0, 2) + Lines(4, 5));
  EXPECT_FALSE(std::ifstream(path_ + ".1").good());
}

TEST_F(MetricsFileTest, WhatAFullDiskLeftOutIsSaid) {
  Write(Lines(0, 3));
  EXPECT_THAT(GoOn(PointOf(7)), IsOkAndHolds(testing::HasSubstr("lacks rounds 3 to 6")));
  EXPECT_EQ(ContentOf(path_), Lines(0, 3) + Lines(7, 8));
}

TEST_F(MetricsFileTest, WhatAProcessHadNoTimeToWriteIsMissing) {
  coordinator::RestoredPoint point = PointOf(5);
  for (int64_t round = 2; round < 5; ++round) point.last_rounds.push_back(SummaryOf(round));
  for (const int64_t written : {0, 3, 4, 5}) {
    Write(Lines(0, written) + R"({"round":)");
    ASSERT_OK_AND_ASSIGN(MetricsFile file, MetricsFile::Open(path_));
    ASSERT_OK_AND_ASSIGN(const MetricsFile::Change change, file.GoOnFrom(point));
    EXPECT_EQ(change.text, "");
    for (const rounds::RoundSummary& round : change.missing) {
      ASSERT_OK(file.Append(MetricsLine(round, job::LossUnit::kNats)));
    }
    EXPECT_EQ(ContentOf(path_), Lines(written == 0 ? 2 : 0, 5)) << written;
  }
  Write(Lines(0, 1));
  EXPECT_THAT(GoOn(point), IsOkAndHolds(testing::HasSubstr("lacks rounds 1 to 1")));
}

TEST_F(MetricsFileTest, TheFinalEvaluationStaysWhereItWasDone) {
  rounds::RoundSummary evaluation = SummaryOf(2);
  evaluation.train_loss.reset();
  evaluation.total_samples = 48;
  evaluation.heldout_loss = 1.0;
  const std::string line = MetricsLine(evaluation, job::LossUnit::kNats) + "\n";
  Write(Lines(0, 2) + line);
  coordinator::RestoredPoint complete = PointOf(2);
  complete.is_evaluated = true;
  EXPECT_OK(GoOn(complete));
  EXPECT_EQ(ContentOf(path_), Lines(0, 2) + line + Lines(2, 3));
}

TEST_F(MetricsFileTest, AFileOfSomethingElseIsRefused) {
  Write("Dear diary,\n");
  EXPECT_THAT(MetricsFile::Open(path_), StatusIs(absl::StatusCode::kInvalidArgument,
                                                 testing::HasSubstr("is not a file of metrics")));
  EXPECT_EQ(ContentOf(path_), "Dear diary,\n");
}

// Returns what the recorder reports if the disk is full for the rounds 0 to 2, and then has room. A
// limit on file sizes simulates the full disk, so this must run in a process of its own.
std::vector<std::pair<std::string, absl::Status>> OutcomesOnAFullDisk() {
  std::signal(SIGXFSZ, SIG_IGN);
  ProgressRecorder::Config config;
  config.metrics_out = testing::TempDir() + "/full.jsonl";
  config.tensorboard_dir = testing::TempDir() + "/full_curves";
  std::vector<std::pair<std::string, absl::Status>> outcomes;
  config.on_writing = [&](absl::string_view flag, const absl::Status& status) {
    outcomes.emplace_back(flag, status);
  };
  config.on_recorded = [](const rounds::RoundSummary& summary) {
    if (summary.round != Round(2)) return;
    const rlimit no_limit{RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &no_limit);
  };
  auto recorder = *ProgressRecorder::Create(config);
  const rlimit limit{10, RLIM_INFINITY};
  setrlimit(RLIMIT_FSIZE, &limit);
  for (int64_t round = 0; round < 4; ++round) recorder->Note(SummaryOf(round));
  recorder.reset();  // writes the queue
  return outcomes;
}

TEST(ProgressRecorderTest, WhatTheProcessBeforeHadNoTimeToWriteIsWritten) {
  const std::string path = testing::TempDir() + "/had_no_time.jsonl";
  std::ofstream(path) << MetricsLine(SummaryOf(0), job::LossUnit::kNats) << "\n";
  std::vector<Round> recorded;
  {
    ASSERT_OK_AND_ASSIGN(
        const auto recorder,
        ProgressRecorder::Create(
            {.metrics_out = path, .on_recorded = [&](const rounds::RoundSummary& round) {
               recorded.push_back(round.round);
             }}));
    coordinator::RestoredPoint point{Round(2), 48};
    point.is_from_journal = true;
    point.last_rounds = {SummaryOf(0), SummaryOf(1)};
    recorder->Note(point);
    recorder->Note(SummaryOf(2));
  }
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  std::string expected;
  for (int64_t round = 0; round < 3; ++round) {
    expected += MetricsLine(SummaryOf(round), job::LossUnit::kNats) + "\n";
  }
  EXPECT_EQ(content.str(), expected);
  EXPECT_THAT(recorded, testing::ElementsAre(Round(1), Round(2)));
}

TEST(ProgressRecorderTest, FullDiskIsToldOnceAndSoIsItsEnd) {
  EXPECT_EXIT(
      {
        using testing::Pair;
        EXPECT_THAT(
            OutcomesOnAFullDisk(),
            testing::ElementsAre(Pair("--metrics_out", testing::Not(IsOk())),
                                 Pair("--tensorboard_dir", testing::Not(IsOk())),
                                 Pair("--metrics_out", IsOk()), Pair("--tensorboard_dir", IsOk())));
        std::exit(testing::Test::HasFailure() ? 1 : 0);
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
}  // namespace lodestar::status
