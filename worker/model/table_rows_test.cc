// SPDX-License-Identifier: Apache-2.0

#include "worker/model/table_rows.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(TableRowsTest, BeginsWithAllRowsUnused) {
  const TableRows rows(/*begin=*/100, /*rows=*/5, /*width=*/3);
  EXPECT_THAT(rows.used(), IsEmpty());
  EXPECT_THAT(rows.unused(), ElementsAre(params::ElementRange{100, 115}));
}

TEST(TableRowsTest, KeepsWhatWasNotedBefore) {
  TableRows rows(/*begin=*/100, /*rows=*/5, /*width=*/3);
  rows.Note({1});
  rows.Note({4, 2, 2});
  EXPECT_THAT(rows.used(),
              ElementsAre(params::ElementRange{103, 109}, params::ElementRange{112, 115}));
  EXPECT_THAT(rows.unused(),
              ElementsAre(params::ElementRange{100, 103}, params::ElementRange{109, 112}));
}

TEST(TableRowsTest, RowsOfALargeTableAreTakenTogether) {
  // The rows are in groups of 256. The last group has 81 rows.
  TableRows rows(/*begin=*/0, /*rows=*/50257, /*width=*/2);
  rows.Note({0, 50256});
  EXPECT_THAT(rows.used(),
              ElementsAre(params::ElementRange{0, 512}, params::ElementRange{100352, 100514}));
  EXPECT_THAT(rows.unused(), ElementsAre(params::ElementRange{512, 100352}));
  for (int32_t row = 0; row < 50257; row += 512) rows.Note({row});
  EXPECT_THAT(rows.used(), SizeIs(testing::Le(TableRows::kMostGroups / 2 + 1)));
}

TEST(TableRowsTest, AllRowsUsedLeaveNothing) {
  TableRows rows(/*begin=*/7, /*rows=*/2, /*width=*/4);
  rows.Note({0, 1});
  EXPECT_THAT(rows.used(), ElementsAre(params::ElementRange{7, 15}));
  EXPECT_THAT(rows.unused(), IsEmpty());
  EXPECT_THAT(rows.all(), ElementsAre(params::ElementRange{7, 15}));
}

}  // namespace
}  // namespace lodestar::model
