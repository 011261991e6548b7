// SPDX-License-Identifier: Apache-2.0

#include "server/shard/whole_contributions.h"

#include "gtest/gtest.h"

namespace lodestar::shard {
namespace {

constexpr WorkerId kWorker(1);
constexpr Incarnation kLife(7);

TEST(WholeContributionsTest, TellsOfTheLastBucketOnly) {
  WholeContributions contributions(/*num_buckets=*/3);
  EXPECT_FALSE(contributions.Settle(kWorker, kLife, Round(5), 2));
  EXPECT_FALSE(contributions.Settle(kWorker, kLife, Round(5), 0));
  EXPECT_TRUE(contributions.Settle(kWorker, kLife, Round(5), 1));
}

TEST(WholeContributionsTest, ABucketThatIsPushedAgainDoesNotStandForAnother) {
  WholeContributions contributions(/*num_buckets=*/2);
  EXPECT_FALSE(contributions.Settle(kWorker, kLife, Round(5), 0));
  EXPECT_FALSE(contributions.Settle(kWorker, kLife, Round(5), 0));
  EXPECT_TRUE(contributions.Settle(kWorker, kLife, Round(5), 1));
  EXPECT_FALSE(contributions.Settle(kWorker, kLife, Round(5), 1)) << "told before";
}

TEST(WholeContributionsTest, WorkersAreApart) {
  WholeContributions contributions(/*num_buckets=*/2);
  EXPECT_FALSE(contributions.Settle(WorkerId(1), kLife, Round(0), 0));
  EXPECT_FALSE(contributions.Settle(WorkerId(2), Incarnation(8), Round(0), 1));
  EXPECT_TRUE(contributions.Settle(WorkerId(1), kLife, Round(0), 1));
  EXPECT_TRUE(contributions.Settle(WorkerId(2), Incarnation(8), Round(0), 0));
}

TEST(WholeContributionsTest, AnotherRoundBeginsAnew) {
  WholeContributions contributions(/*num_buckets=*/2);
  EXPECT_FALSE(contributions.Settle(kWorker, kLife, Round(0), 0));
  EXPECT_FALSE(contributions.Settle(kWorker, kLife, Round(1), 0));
  EXPECT_TRUE(contributions.Settle(kWorker, kLife, Round(1), 1));
}

TEST(WholeContributionsTest, WhatIsLateFromAnEarlierRoundOrLifeDoesNotCount) {
  WholeContributions contributions(/*num_buckets=*/2);
  EXPECT_FALSE(contributions.Settle(kWorker, kLife, Round(1), 0));
  EXPECT_FALSE(contributions.Settle(kWorker, kLife, Round(0), 1));
  EXPECT_FALSE(contributions.Settle(kWorker, Incarnation(6), Round(2), 1));
  EXPECT_TRUE(contributions.Settle(kWorker, kLife, Round(1), 1));
}

TEST(WholeContributionsTest, OfManyWorkersTheOldestAreForgotten) {
  WholeContributions contributions(/*num_buckets=*/2);
  constexpr int kMany = 1500;
  for (int i = 1; i <= kMany; ++i) {
    EXPECT_FALSE(contributions.Settle(WorkerId(i), Incarnation(i), Round(0), 0));
  }
  EXPECT_FALSE(contributions.Settle(WorkerId(1), Incarnation(1), Round(0), 1));
  EXPECT_TRUE(contributions.Settle(WorkerId(kMany), Incarnation(kMany), Round(0), 1));
}

TEST(WholeContributionsTest, AnotherLifeBeginsAnewAtAnyRound) {
  WholeContributions contributions(/*num_buckets=*/1);
  EXPECT_TRUE(contributions.Settle(kWorker, kLife, Round(5), 0));
  EXPECT_TRUE(contributions.Settle(kWorker, Incarnation(8), Round(3), 0));
}

}  // namespace
}  // namespace lodestar::shard
