// SPDX-License-Identifier: Apache-2.0

#include "server/status/history_recorder.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

namespace lodestar::status {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1000);

rounds::RoundSummary Trained(int64_t round) {
  rounds::RoundSummary summary;
  summary.round = Round(round);
  summary.train_loss = 1.0 + static_cast<double>(round);
  summary.samples = 10;
  summary.total_samples = 10 * (round + 1);
  summary.trained_time = absl::Seconds(round + 1);
  summary.learning_rate = 1.0 / static_cast<double>(round + 1);
  return summary;
}

class HistoryRecorderTest : public ::testing::Test {
 protected:
  void Train(int64_t begin, int64_t end) {
    for (int64_t round = begin; round < end; ++round) history_.Note(Trained(round), kNow);
  }

  HistoryRecorder history_;
};

TEST_F(HistoryRecorderTest, HasEachRoundWithItsLosses) {
  rounds::RoundSummary evaluated = Trained(1);
  evaluated.heldout_loss = 5.0;
  history_.Note(Trained(0), kNow);
  history_.Note(evaluated, kNow);
  const history::RunHistory content = history_.Read();
  EXPECT_EQ(content.rounds_per_point, 1);
  ASSERT_EQ(content.trained.size(), 2u);
  EXPECT_EQ(content.trained[1], (history::HistoryPoint{Round(1), Round(1), 20, 2.0, 2.0, 1, 0.5}));
  // The loss belongs to the weights with which the round has started.
  EXPECT_THAT(content.heldout, ElementsAre(history::HeldoutPoint{Round(1), 10, 2.0, 5.0}));
}

TEST_F(HistoryRecorderTest, HasSettingsThatHaveAnEffectAndUnitOfLosses) {
  job::JobSpec job;
  job.model = {.name = "bytes", .architecture = params::GptSpec{.vocabulary = 256}};
  job.optimizer.kind = job::OptimizerKind::kAdamW;
  const uint64_t before = history_.version();
  history_.Note(coordinator::DecidedJob{job}, kNow);
  EXPECT_NE(history_.version(), before);
  const history::RunHistory content = history_.Read();
  EXPECT_EQ(content.loss_unit, job::LossUnit::kBitsPerByte);
  ASSERT_FALSE(content.settings.empty());
  EXPECT_EQ(content.settings.front(), (job::JobSetting{"model", "bytes"}));
  std::vector<std::string> flags;
  for (const job::JobSetting& setting : content.settings) flags.push_back(setting.flag);
  EXPECT_THAT(flags, Contains("beta1"));
  EXPECT_THAT(flags, Not(Contains("momentum"))) << "of another optimizer";
}

TEST_F(HistoryRecorderTest, NeighboursOfALongRunBecomeOnePoint) {
  const int64_t rounds = 5 * static_cast<int64_t>(HistoryRecorder::kMaxPoints);
  Train(0, rounds);
  const history::RunHistory content = history_.Read();
  EXPECT_LE(content.trained.size(), HistoryRecorder::kMaxPoints);
  EXPECT_GT(content.trained.size(), HistoryRecorder::kMaxPoints / 4);
  // Every round is in exactly one point, in order.
  int64_t next = 0;
  for (const history::HistoryPoint& point : content.trained) {
    EXPECT_EQ(point.first_round, Round(next));
    next = point.last_round.value() + 1;
    EXPECT_DOUBLE_EQ(point.train_loss,
                     1.0 + 0.5 * (point.first_round.value() + point.last_round.value()));
  }
  EXPECT_EQ(next, rounds);
}

TEST_F(HistoryRecorderTest, RoundsThatComeAgainReplaceThoseThatTheyWere) {
  Train(0, 10);
  history_.Note(coordinator::RestoredPoint{.next_round = Round(4)}, kNow);
  EXPECT_EQ(history_.Read().trained.back().last_round, Round(3));
  Train(4, 6);
  EXPECT_EQ(history_.Read().trained.size(), 6u);
  // If a process goes on from the journal, no recorded round is removed.
  history_.Note(coordinator::RestoredPoint{.next_round = Round(4), .is_from_journal = true}, kNow);
  EXPECT_EQ(history_.Read().trained.size(), 6u);
}

// In asynchronous modes, rounds may end in another order than they began.
TEST_F(HistoryRecorderTest, RoundsThatEndInAnotherOrderDoNotLeadBack) {
  for (const int64_t round : {0, 2, 1, 4, 3}) {
    rounds::RoundSummary summary = Trained(round);
    summary.heldout_loss = 5.0;
    history_.Note(summary, kNow);
  }
  const history::RunHistory content = history_.Read();
  ASSERT_EQ(content.trained.size(), 5u);
  ASSERT_EQ(content.heldout.size(), 5u);
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_GE(content.trained[i].last_round, content.trained[i - 1].last_round);
    EXPECT_GE(content.heldout[i].round, content.heldout[i - 1].round);
  }
  EXPECT_EQ(content.trained.back().last_round, Round(4));
}

TEST_F(HistoryRecorderTest, AnEventOfSeveralLinesBecomesOne) {
  history_.Note(coordinator::Event{"settings that differ:\n  setting  asked\n  rounds   20"}, kNow);
  EXPECT_EQ(history_.Read().events.front().text, "settings that differ: setting asked; rounds 20");
}

TEST_F(HistoryRecorderTest, TheOldestEventsGo) {
  for (size_t i = 0; i < HistoryRecorder::kMaxEvents + 2; ++i) {
    history_.Note(coordinator::Event{absl::StrCat("event ", i)}, kNow);
  }
  history_.Note(coordinator::Alarm{"disk full"}, kNow);
  const auto events = history_.Read().events;
  EXPECT_EQ(events.size(), HistoryRecorder::kMaxEvents);
  EXPECT_EQ(events.front().text, "event 3");
  const absl::Time last = kNow + absl::Microseconds(HistoryRecorder::kMaxEvents + 2);
  EXPECT_EQ(events.back(), (history::HistoryEvent{last, true, "disk full"}))
      << "no two have the same time";
}

TEST_F(HistoryRecorderTest, KeepsTheTokensOfASampleWhereARoundDoesNotKnowThem) {
  rounds::RoundSummary summary = Trained(0);
  summary.tokens_per_sample = 64;
  history_.Note(summary, kNow);
  history_.Note(Trained(1), kNow);
  EXPECT_EQ(history_.Read().tokens_per_sample, 64);
  HistoryRecorder other;
  other.GoOnFrom(history_.Read());
  EXPECT_EQ(other.Read().tokens_per_sample, 64);
}

TEST_F(HistoryRecorderTest, TheVersionChangesWithWhatThereIsToRead) {
  const uint64_t before = history_.version();
  EXPECT_EQ(history_.version(), before);
  history_.Note(coordinator::Event{"joined"}, kNow);
  EXPECT_NE(history_.version(), before);
}

TEST_F(HistoryRecorderTest, RoundsThatTheProcessBeforeMayHaveNotedAreThereOnce) {
  Train(0, 6);
  HistoryRecorder other;
  history_.Note(coordinator::DecidedJob{}, kNow);
  other.GoOnFrom(history_.Read());
  coordinator::RestoredPoint point{.next_round = Round(8), .is_from_journal = true};
  for (const int64_t round : {4, 5, 6, 7}) point.last_rounds.push_back(Trained(round));
  other.Note(point, kNow);
  Train(6, 8);
  EXPECT_EQ(other.Read(), history_.Read());
}

}  // namespace
}  // namespace lodestar::status
