// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/top_text.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/runtime/text_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::psctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

history::RunHistory Falling(int rounds) {
  history::RunHistory history;
  for (int64_t round = 0; round < rounds; ++round) {
    history.trained.push_back({.first_round = Round(round),
                               .last_round = Round(round),
                               .train_loss = 8.0 - static_cast<double>(round),
                               .num_losses = 1});
  }
  return history;
}

v1::ClusterStatus OfWorkers(int workers) {
  v1::ClusterStatus status;
  status.set_state("training");
  for (int i = 0; i < workers; ++i) status.add_workers()->set_name(absl::StrCat("w", i));
  return status;
}

TEST(LossCurveTest, TheHighestLossIsAFullBlockAndTheLowestTheLeast) {
  EXPECT_EQ(LossCurveText(Falling(8), 8, /*has_blocks=*/true), "█▇▆▅▄▃▂▁");
  EXPECT_EQ(LossCurveText(Falling(8), 8, /*has_blocks=*/false), "#*+=:-._");
  EXPECT_EQ(LossCurveText(Falling(8), 2, /*has_blocks=*/false), "#_") << "means of four";
}

TEST(LossCurveTest, WhereThereIsNothingToSeeThereIsNoCurve) {
  EXPECT_EQ(LossCurveText(Falling(1), 8, /*has_blocks=*/true), "");
  EXPECT_EQ(LossCurveText(Falling(8), -3, /*has_blocks=*/true), "");
  history::RunHistory without = Falling(2);
  for (history::HistoryPoint& point : without.trained) point.num_losses = 0;
  EXPECT_EQ(LossCurveText(without, 8, /*has_blocks=*/true), "");
  history::RunHistory flat = Falling(2);
  flat.trained[1] = flat.trained[0];
  EXPECT_EQ(LossCurveText(flat, 8, /*has_blocks=*/false), "__");
}

TEST(TopTextTest, APictureFitsItsTerminal) {
  history::RunHistory history = Falling(200);
  for (int i = 0; i < 100; ++i) history.events.push_back({{}, false, absl::StrCat("event ", i)});
  for (const int rows : {1, 5, 24, 60}) {
    for (const int workers : {0, 2, 64}) {
      const std::string text =
          TopText(OfWorkers(workers), history, {.columns = 80, .rows = rows, .has_blocks = false});
      const std::vector<std::string> lines = absl::StrSplit(text, '\n');
      EXPECT_LE(static_cast<int>(lines.size()) - 1, std::max(rows, 6)) << rows << ", " << workers;
      for (const std::string& line : lines) EXPECT_LE(line.size(), 80) << line;
    }
  }
}

TEST(TopTextTest, TheNewestEventsAreShownAndWhatIsLeftOutIsCounted) {
  history::RunHistory history = Falling(200);
  for (int i = 0; i < 100; ++i) history.events.push_back({{}, false, absl::StrCat("event ", i)});
  const std::string text =
      TopText(OfWorkers(64), history, {.columns = 80, .rows = 30, .has_blocks = false});
  EXPECT_THAT(text, HasSubstr("event 99"));
  EXPECT_THAT(text, Not(HasSubstr("event 50\n")));
  EXPECT_THAT(text, HasSubstr("more lines"));
  EXPECT_THAT(text, HasSubstr("q: quit"));
  EXPECT_THAT(TopText(OfWorkers(1), history, {.note = "no answer for 3s"}),
              HasSubstr("no answer for 3s"));
}

TEST(TopTextTest, WhatIsWrongIsShownWhereThereIsNoRoomForAll) {
  v1::ClusterStatus status = OfWorkers(8);
  status.mutable_open_round()->set_waiting_for("a worker");
  for (int i = 0; i < 3; ++i) status.add_alarms()->set_text(absl::StrCat("trouble ", i));
  const std::string text =
      TopText(status, Falling(20), {.columns = 80, .rows = 20, .has_blocks = false});
  EXPECT_THAT(text, AllOf(HasSubstr("trouble 2"), HasSubstr("curve "), HasSubstr("more lines")));
}

TEST(TopTextTest, WithoutATerminalAllIsThere) {
  const std::string text = TopText(OfWorkers(64), Falling(3),
                                   {.columns = kUnlimitedColumns, .rows = 0, .has_blocks = false});
  EXPECT_THAT(text, HasSubstr("w63"));
  EXPECT_THAT(text, Not(HasSubstr("more lines")));
  EXPECT_THAT(text, Not(HasSubstr("q: quit"))) << "there are no keys";
}

}  // namespace
}  // namespace lodestar::psctl
