#include "server/shard/whole_contributions.h"

#include "gtest/gtest.h"

namespace lodestar {
namespace {

constexpr WorkerId kWorker(1);
constexpr Incarnation kLife(7);

TEST(WholeContributionsTest, TellsOfTheLastBucketOnly) {
  WholeContributions contributions(/*num_buckets=*/3);
  EXPECT_FALSE(contributions.Count(kWorker, kLife, Round(5)));
  EXPECT_FALSE(contributions.Count(kWorker, kLife, Round(5)));
  EXPECT_TRUE(contributions.Count(kWorker, kLife, Round(5)));
}

TEST(WholeContributionsTest, CountsWorkersApart) {
  WholeContributions contributions(/*num_buckets=*/2);
  EXPECT_FALSE(contributions.Count(WorkerId(1), kLife, Round(0)));
  EXPECT_FALSE(contributions.Count(WorkerId(2), Incarnation(8), Round(0)));
  EXPECT_TRUE(contributions.Count(WorkerId(1), kLife, Round(0)));
  EXPECT_TRUE(contributions.Count(WorkerId(2), Incarnation(8), Round(0)));
}

TEST(WholeContributionsTest, AnotherRoundBeginsAnew) {
  WholeContributions contributions(/*num_buckets=*/2);
  EXPECT_FALSE(contributions.Count(kWorker, kLife, Round(0)));
  EXPECT_FALSE(contributions.Count(kWorker, kLife, Round(1)));
  EXPECT_TRUE(contributions.Count(kWorker, kLife, Round(1)));
}

TEST(WholeContributionsTest, WhatIsLateFromAnEarlierRoundOrLifeDoesNotCount) {
  WholeContributions contributions(/*num_buckets=*/2);
  EXPECT_FALSE(contributions.Count(kWorker, kLife, Round(1)));
  EXPECT_FALSE(contributions.Count(kWorker, kLife, Round(0)));
  EXPECT_FALSE(contributions.Count(kWorker, Incarnation(6), Round(2)));
  EXPECT_TRUE(contributions.Count(kWorker, kLife, Round(1)));
}

TEST(WholeContributionsTest, AnotherLifeBeginsAnewAtAnyRound) {
  WholeContributions contributions(/*num_buckets=*/1);
  EXPECT_TRUE(contributions.Count(kWorker, kLife, Round(5)));
  EXPECT_TRUE(contributions.Count(kWorker, Incarnation(8), Round(3)));
}

}  // namespace
}  // namespace lodestar
