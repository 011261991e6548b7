// SPDX-License-Identifier: Apache-2.0

#include "server/shard/norm_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace lodestar::shard {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// Counts norms[0] for worker 1, norms[1] for worker 2, and so on.
void CountAll(NormWatch& watch, const std::vector<double>& norms) {
  for (size_t i = 0; i < norms.size(); ++i) {
    watch.Count(WorkerId(static_cast<uint32_t>(i + 1)), Incarnation(7), Round(3), norms[i]);
  }
}

std::vector<NormWatch::Finding> Watch(NormWatch& watch, const std::vector<double>& norms) {
  CountAll(watch, norms);
  return watch.EndRound();
}

TEST(NormWatchTest, BringsBackWhatIsFarBeyondWhatIsUsualAndNamesTheWorker) {
  NormWatch watch(10.0);
  EXPECT_THAT(Watch(watch, {1, 2, 3, 4}), IsEmpty());
  EXPECT_EQ(watch.ScaleOf(1e9), 1.0f) << "four contributions say little";
  EXPECT_THAT(Watch(watch, {1, 2, 3, 4}), IsEmpty());
  EXPECT_EQ(watch.ScaleOf(20.0), 1.0f);
  EXPECT_EQ(watch.ScaleOf(300.0), 0.01f) << "to the usual norm, which is 3";
  const auto findings = Watch(watch, {1, 2, 3, 200});
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].worker, WorkerId(4));
  EXPECT_EQ(findings[0].incarnation, Incarnation(7));
  EXPECT_EQ(findings[0].round, Round(3));
  EXPECT_EQ(findings[0].norm, 200.0);
  EXPECT_EQ(findings[0].usual, 3.0);
}

TEST(NormWatchTest, AWildWorkerFromTheBeginningDoesNotSetTheMeasure) {
  for (const size_t workers : {3, 4, 5}) {
    NormWatch watch(10.0);
    std::vector<double> norms(workers, 1.0);
    norms[0] = 100.0;
    for (int round = 0; round < 8; ++round) {
      EXPECT_THAT(Watch(watch, norms), SizeIs(1)) << workers << " round " << round;
    }
    EXPECT_EQ(watch.ScaleOf(100.0), 0.01f) << workers;
  }
}

TEST(NormWatchTest, TheFirstSumsAreMadeAsLongAsTheOthersAre) {
  NormWatch watch(10.0);
  CountAll(watch, {1, 1, 97, 1});
  EXPECT_FLOAT_EQ(watch.ScaleOfSum(), 0.04f);
  watch.EndRound();
  CountAll(watch, {1, 1, 9, 1});
  EXPECT_EQ(watch.ScaleOfSum(), 1.0f) << "all are within the limit";
  watch.EndRound();
  CountAll(watch, {1, 1, 97, 1});
  EXPECT_EQ(watch.ScaleOfSum(), 1.0f) << "each is scaled by itself now";
  NormWatch most(10.0);
  CountAll(most, {1, 97, 97, 97});
  EXPECT_EQ(most.ScaleOfSum(), 1.0f);
}

TEST(NormWatchTest, WhereMostAreBeyondNobodyIsToBlameAndItIsWhatIsUsual) {
  NormWatch watch(10.0);
  for (int round = 0; round < 20; ++round) Watch(watch, {1, 1, 1, 1});
  EXPECT_LT(watch.ScaleOf(50.0), 1.0f);
  EXPECT_THAT(Watch(watch, {50, 50, 50, 1}), IsEmpty());
  EXPECT_EQ(watch.ScaleOf(50.0), 1.0f);
  // With a single worker, its contribution is more than half of the round. So it is never a
  // finding.
  NormWatch alone(10.0);
  for (int round = 0; round < 20; ++round) Watch(alone, {1});
  EXPECT_THAT(Watch(alone, {100}), IsEmpty());
}

// Late in a run most batches teach nothing any more, and a few teach as much as in the beginning.
TEST(NormWatchTest, HonestSpikesAmongSmallNormsAreLeftAlone) {
  NormWatch watch(10.0);
  for (int round = 0; round < 50; ++round) Watch(watch, {1, 1.5, 2, 1});
  for (int round = 0; round < 100; ++round) {
    const double spike = round % 20 == 0 ? 2.0 : 0.01;
    EXPECT_THAT(Watch(watch, {0.01, spike, 0.02, 0.01}), IsEmpty()) << round;
  }
}

// Counts contributions that are applied one by one. norms[i] belongs to workers[i]: with {1, 1, 2},
// worker 1 has two norms and worker 2 has one.
std::vector<NormWatch::Finding> WatchAlone(NormWatch& watch, const std::vector<uint32_t>& workers,
                                           const std::vector<double>& norms) {
  for (size_t i = 0; i < workers.size(); ++i) {
    watch.Count(WorkerId(workers[i]), Incarnation(7), Round(3), norms[i]);
  }
  return watch.EndRound();
}

TEST(NormWatchTest, AloneAWorkerIsToBlameForWhatMostOfItsOwnAre) {
  NormWatch watch(10.0, NormWatch::kMinContributionsAlone);
  const std::vector<uint32_t> workers = {1, 2, 1, 3, 1, 2, 1, 3};
  const std::vector<double> ones(8, 1.0);
  for (int i = 0; i < 3; ++i) WatchAlone(watch, workers, ones);
  EXPECT_EQ(watch.ScaleOf(1e9), 1.0f) << "early in a run they differ";
  WatchAlone(watch, workers, ones);
  EXPECT_LT(watch.ScaleOf(1e9), 1.0f);
  EXPECT_THAT(WatchAlone(watch, workers, {1, 99, 1, 1, 1, 99, 1, 1}), SizeIs(2)) << "worker 2";
  EXPECT_THAT(WatchAlone(watch, workers, {99, 99, 1, 1, 1, 1, 1, 1}), IsEmpty()) << "one of each";
  EXPECT_THAT(WatchAlone(watch, workers, {99, 1, 99, 1, 99, 1, 99, 1}), IsEmpty())
      << "half of them: the run has changed";
}

TEST(NormWatchTest, AloneASlowWorkerIsToBlameIfItIsTheOnlyOne) {
  NormWatch watch(10.0, NormWatch::kMinContributionsAlone);
  const std::vector<uint32_t> workers = {1, 1, 1, 1, 2, 1, 1, 1};
  for (int i = 0; i < 4; ++i) WatchAlone(watch, workers, std::vector<double>(8, 1.0));
  EXPECT_THAT(WatchAlone(watch, workers, {1, 1, 1, 1, 99, 1, 1, 1}), SizeIs(1));
  EXPECT_THAT(WatchAlone(watch, workers, {1, 1, 99, 1, 99, 1, 1, 1}), IsEmpty());
}

TEST(NormWatchTest, ForgetsInTimeWhatWasUsual) {
  NormWatch watch(10.0);
  Watch(watch, std::vector<double>(8, 100.0));
  int round = 0;
  while (watch.ScaleOf(100.0) == 1.0f) {
    Watch(watch, std::vector<double>(8, 1.0));
    ASSERT_LT(++round, 300);
  }
  EXPECT_GT(round, 200);  // 0.99^230 is about 0.1
}

TEST(NormWatchTest, HalfOfTheWorkersBlameNobody) {
  for (const auto& norms : {std::vector<double>{1, 1e-6}, std::vector<double>{1, 1e-6, 1, 1e-6}}) {
    NormWatch watch(10.0);
    for (int round = 0; round < 20; ++round) {
      EXPECT_THAT(Watch(watch, norms), IsEmpty());
      EXPECT_EQ(watch.ScaleOf(1.0), 1.0f);
    }
  }
}

TEST(NormWatchTest, RowsThatFewBatchesHaveAreLeftAlone) {
  NormWatch watch(10.0);
  for (int round = 0; round < 1000; ++round) {
    const double row = round % 100 == 0 ? 1.0 : 0.0;
    EXPECT_EQ(watch.ScaleOf(row), 1.0f) << round;
    EXPECT_THAT(Watch(watch, {row, 0, 0, 0}), IsEmpty()) << round;
  }
}

TEST(NormWatchTest, GradientsThatBeginWithNothingAreLeftAlone) {
  NormWatch watch(10.0);
  for (int round = 0; round < 10; ++round) Watch(watch, {0, 0, 0, 0});
  EXPECT_EQ(watch.ScaleOf(1e-30), 1.0f);
  CountAll(watch, {0, 0, 0, 1});
  EXPECT_EQ(watch.ScaleOfSum(), 1.0f);
}

TEST(NormWatchTest, TheOrderWithinARoundDecidesNothing) {
  NormWatch one(10.0), other(10.0);
  for (int round = 0; round < 20; ++round) {
    Watch(one, {1.0 + round, 5, 100});
    Watch(other, {100, 5, 1.0 + round});
  }
  EXPECT_EQ(one.usual(), other.usual());
}

TEST(NormWatchTest, GoesOnFromWhatWasUsual) {
  NormWatch straight(10.0), restored(10.0);
  for (int round = 0; round < 20; ++round) Watch(straight, {1.0 + round, 2, 3, 4});
  restored.Count(WorkerId(1), Incarnation(1), Round(1), 5.0);
  restored.Restore(straight.usual());
  EXPECT_EQ(restored.num_counted(), 0);
  EXPECT_EQ(restored.ScaleOf(500.0), straight.ScaleOf(500.0));
  Watch(straight, {1, 2, 3, 4});
  Watch(restored, {1, 2, 3, 4});
  EXPECT_EQ(restored.usual(), straight.usual());
}

TEST(NormWatchTest, OffItKeepsNothing) {
  NormWatch watch(0.0);
  for (int round = 0; round < 20; ++round) EXPECT_THAT(Watch(watch, {1, 1, 1, 1e9}), IsEmpty());
  EXPECT_EQ(watch.ScaleOf(1e18), 1.0f);
  CountAll(watch, {1, 1e18});
  EXPECT_EQ(watch.ScaleOfSum(), 1.0f);
  EXPECT_EQ(watch.usual(), UsualNorm());
}

}  // namespace
}  // namespace lodestar::shard
