// SPDX-License-Identifier: Apache-2.0

#include "common/history/history_thinning.h"

#include <gtest/gtest.h>

namespace lodestar::history {
namespace {

RunHistory OfRounds(int64_t num_rounds) {
  RunHistory history;
  for (int64_t round = 0; round < num_rounds; ++round) {
    history.trained.push_back({Round(round), Round(round), 10 * (round + 1),
                               static_cast<double>(round), static_cast<double>(round), 1});
    history.heldout.push_back({Round(round), 10 * round, 0.0, static_cast<double>(round)});
  }
  return history;
}

TEST(HistoryThinningTest, EveryRoundStaysInOnePointAndTheLastOnesStay) {
  for (const int64_t num_rounds : {1, 2, 3, 7, 100, 101}) {
    RunHistory history = OfRounds(num_rounds);
    ThinCurves(/*max_points=*/4, history);
    ASSERT_LE(history.trained.size(), 4u) << num_rounds;
    ASSERT_LE(history.heldout.size(), 4u) << num_rounds;
    EXPECT_EQ(history.heldout.back().round, Round(num_rounds - 1));
    int64_t next = 0;
    for (const HistoryPoint& point : history.trained) {
      EXPECT_EQ(point.first_round, Round(next));
      next = point.last_round.value() + 1;
      EXPECT_DOUBLE_EQ(point.train_loss, 0.5 * static_cast<double>(point.first_round.value() +
                                                                   point.last_round.value()));
    }
    EXPECT_EQ(next, num_rounds);
    EXPECT_EQ(history.trained.back().samples, 10 * num_rounds);
  }
}

TEST(HistoryThinningTest, AShortOneStaysAsItIs) {
  RunHistory history = OfRounds(4);
  ThinCurves(/*max_points=*/4, history);
  EXPECT_EQ(history, OfRounds(4));
}

TEST(HistoryThinningTest, RoundsWithoutALossDoNotCount) {
  const HistoryPoint known{Round(0), Round(0), 10, 1.0, 2.0, 1};
  const HistoryPoint unknown{Round(1), Round(1), 20, 2.0, 0.0, 0};
  EXPECT_EQ(Joined(known, unknown), (HistoryPoint{Round(0), Round(1), 20, 2.0, 2.0, 1}));
  EXPECT_EQ(Joined(unknown, unknown).num_losses, 0);
}

}  // namespace
}  // namespace lodestar::history
