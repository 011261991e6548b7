// SPDX-License-Identifier: Apache-2.0

#include "server/shard/dedup_table.h"

#include <gtest/gtest.h>

namespace lodestar::shard {
namespace {

sync::CountedContribution Row(int incarnation, int round) {
  return {Incarnation(incarnation), Round(round)};
}

TEST(DedupTableTest, PublishedRowsAreThoseOfTheVersion) {
  DedupTable table;
  const auto everyone = [](WorkerId, Incarnation) { return true; };
  table.Count(WorkerId(2), Row(1, 0), 2, everyone);
  table.MarkPublished();
  table.Count(WorkerId(2), Row(1, 1), 2, everyone);
  table.Count(WorkerId(1), Row(1, 1), 2, everyone);
  EXPECT_EQ(table.Find(WorkerId(2)), Row(1, 1));
  EXPECT_EQ(table.Find(WorkerId(3)), std::nullopt);
  ASSERT_EQ(table.Published().size(), 1);
  EXPECT_EQ(table.Published()[0].last, Row(1, 0));

  DedupTable restored;
  restored.Restore(table.Published());
  EXPECT_EQ(restored.Find(WorkerId(2)), Row(1, 0));
  EXPECT_EQ(restored.Published(), table.Published());
}

TEST(DedupTableTest, ForgetsTheOldestOfThoseWhoAreGoneAndNoMember) {
  DedupTable table;
  // The first worker stays. All other workers come and go, one after the other.
  constexpr int kWorkers = 2000;
  for (int worker = 1; worker <= kWorkers; ++worker) {
    table.Count(WorkerId(worker), Row(worker, worker), 2, [&](WorkerId id, Incarnation) {
      return id == WorkerId(1) || id == WorkerId(worker);
    });
  }
  table.MarkPublished();
  const std::vector<CountedWorker> rows = table.Published();
  ASSERT_EQ(rows.size(), DedupTable::kMaxEndedRows + 2);
  EXPECT_EQ(rows[0].worker, WorkerId(1));
  EXPECT_EQ(rows[1].worker, WorkerId(kWorkers - DedupTable::kMaxEndedRows));
  EXPECT_EQ(rows.back().worker, WorkerId(kWorkers));
}

}  // namespace
}  // namespace lodestar::shard
