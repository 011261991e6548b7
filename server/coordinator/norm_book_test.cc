#include "server/coordinator/norm_book.h"

#include "gtest/gtest.h"

namespace lodestar {
namespace {

TEST(NormBookTest, SumsSegmentsInOrderOfShardWhateverTheOrderOfArrival) {
  // 1e16 + 1 loses the 1; so the order of the sum shows in the result.
  NormBook book(2);
  EXPECT_FALSE(book.Add(Round(0), 1, {1.0, -1e16}));
  ASSERT_TRUE(book.Add(Round(0), 0, {1e16}));
  EXPECT_EQ(book.TotalOf(Round(0)), (1e16 + 1.0) - 1e16);
}

TEST(NormBookTest, RoundsDoNotMix) {
  NormBook book(2);
  EXPECT_FALSE(book.Add(Round(1), 0, {1.0}));
  EXPECT_FALSE(book.Add(Round(2), 1, {2.0}));
}

TEST(NormBookTest, WhatComesAgainCountsOnceAndChangesNoTotal) {
  NormBook book(2);
  EXPECT_FALSE(book.Add(Round(3), 0, {1.0}));
  EXPECT_FALSE(book.Add(Round(3), 0, {1.0}));
  EXPECT_TRUE(book.Add(Round(3), 1, {4.0}));
  EXPECT_TRUE(book.Add(Round(3), 0, {7.0}));
  EXPECT_EQ(book.TotalOf(Round(3)), 5.0);
}

TEST(NormBookTest, KeepsTheLastTotalsOnly) {
  NormBook book(1);
  for (int64_t round = 0; round < 100; ++round) book.Add(Round(round), 0, {1.0});
  EXPECT_LT(book.totals().size(), 8);
  EXPECT_TRUE(book.totals().contains(Round(99)));
}

TEST(NormBookTest, NothingIsLeftOfALifeThatIsOver) {
  NormBook book(2);
  book.Add(Round(0), 0, {1.0});
  book.Clear();
  EXPECT_FALSE(book.Add(Round(0), 1, {2.0}));
}

}  // namespace
}  // namespace lodestar
