// SPDX-License-Identifier: Apache-2.0

#include "server/shard/direction_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace lodestar::shard {
namespace {

using ::testing::IsEmpty;

// Rounds generates rounds of workers 1, 2, ... whose cosines scatter around `means`, like the
// cosines of noisy gradients.
class Rounds {
 public:
  explicit Rounds(std::vector<double> means, double spread = 0.1, int num_buckets = 1)
      : means_(std::move(means)), spread_(spread), num_buckets_(num_buckets), watch_(num_buckets) {}

  std::vector<DirectionWatch::Finding> Next() {
    std::vector<DirectionPart> parts;
    for (size_t i = 0; i < means_.size(); ++i) {
      parts.push_back({.worker = WorkerId(static_cast<uint32_t>(i + 1)),
                       .incarnation = Incarnation(7),
                       .product = 10.0 * (means_[i] + spread_ * normal_(generator_)),
                       .own_square = 4.0,
                       .others_square = 25.0});
    }
    std::vector<DirectionWatch::Finding> findings;
    for (int bucket = 0; bucket < num_buckets_; ++bucket) {
      EXPECT_THAT(findings, IsEmpty()) << "before the last bucket has come";
      findings = watch_.OnRound(Round(next_), parts);
    }
    ++next_;
    return findings;
  }
  // Runs this number of rounds. Returns for each worker in how many of them it was found.
  std::vector<int> Found(int rounds) {
    std::vector<int> found(means_.size());
    for (int i = 0; i < rounds; ++i) {
      for (const DirectionWatch::Finding& finding : Next()) {
        EXPECT_EQ(finding.round, Round(next_ - 1));
        EXPECT_EQ(finding.incarnation, Incarnation(7));
        ++found[finding.worker.value() - 1];
      }
    }
    return found;
  }
  void Become(std::vector<double> means) { means_ = std::move(means); }

 private:
  std::vector<double> means_;
  const double spread_;
  const int num_buckets_;
  DirectionWatch watch_;
  std::mt19937 generator_{1};
  std::normal_distribution<double> normal_;
  int64_t next_ = 0;
};

TEST(DirectionWatchTest, WhoOpposesTheOthersIsFoundOnceThatIsNoChance) {
  for (const int buckets : {1, 5}) {
    Rounds rounds({0.2, 0.2, -0.2, 0.2}, 0.1, buckets);
    EXPECT_THAT(rounds.Found(25), testing::Each(0)) << "too few rounds";
    int more = 0;
    std::vector<DirectionWatch::Finding> findings;
    for (; findings.empty() && more < 50; ++more) findings = rounds.Next();
    EXPECT_LT(more, 50);
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].worker, WorkerId(3));
    EXPECT_TRUE(findings[0].is_opposed);
    EXPECT_NEAR(findings[0].cosine, -0.2, 0.05);
    EXPECT_NEAR(findings[0].others_cosine, 0.2, 0.05);
    EXPECT_THAT(rounds.Found(200), testing::ElementsAre(0, 0, 200, 0));
  }
}

TEST(DirectionWatchTest, WhoSendsNoiseIsFoundAndNotHeldForAnOpponent) {
  Rounds rounds({0.2, 0.2, 0.2, 0.0}, 0.1);
  EXPECT_THAT(rounds.Found(DirectionWatch::kWindow - 1), testing::Each(0));
  int found = 0;
  for (int i = 0; i < 400; ++i) {
    for (const DirectionWatch::Finding& finding : rounds.Next()) {
      EXPECT_EQ(finding.worker, WorkerId(4));
      EXPECT_FALSE(finding.is_opposed);
      ++found;
    }
  }
  EXPECT_GT(found, 300);
}

TEST(DirectionWatchTest, HonestWorkersAreNotFoundHoweverNoisyTheirGradients) {
  for (const double mean : {0.0, 0.01, 0.05, 0.1, 0.3, 1.0}) {
    Rounds rounds(std::vector<double>(4, mean), 0.1);
    EXPECT_THAT(rounds.Found(20'000), testing::Each(0)) << mean;
  }
}

TEST(DirectionWatchTest, WhereAllOpposeEachOtherNobodyIsToBlame) {
  // Workers have unlike data, and the run is near its end. So their gradients cancel out, and each
  // worker opposes the others.
  Rounds rounds({-0.8, -0.3, -0.3, -0.2}, 0.05);
  EXPECT_THAT(rounds.Found(500), testing::Each(0));
}

TEST(DirectionWatchTest, OfTwoNobodyCanTell) {
  Rounds rounds({-0.5, -0.5}, 0.05);
  EXPECT_THAT(rounds.Found(500), testing::Each(0));
}

TEST(DirectionWatchTest, WhoTurnsAroundIsNotFoundAnyMore) {
  Rounds rounds({0.2, 0.2, -0.2}, 0.05);
  EXPECT_THAT(rounds.Found(100), testing::ElementsAre(0, 0, testing::Gt(50)));
  rounds.Become({0.2, 0.2, 0.2});
  rounds.Found(100);
  EXPECT_THAT(rounds.Found(300), testing::Each(0));
}

TEST(DirectionWatchTest, TheSampleOfAWorkerIsBoundedWhateverTheNumberOfBuckets) {
  for (const int num_buckets : {1, 2, 63, 64, 65, 1000, 65536}) {
    const DirectionWatch watch(num_buckets);
    int64_t sampled = 0;
    for (int position = 0; position < num_buckets; ++position) {
      const int64_t elements = watch.SampledElements(position);
      if (elements == 0) continue;
      EXPECT_GE(elements, ContributionSamples::kSampledBlock) << num_buckets;
      sampled += elements;
    }
    EXPECT_LE(sampled, DirectionWatch::kSampledElements) << num_buckets;
    EXPECT_GE(sampled, DirectionWatch::kSampledElements / 2) << num_buckets;
  }
}

TEST(DirectionWatchTest, RoundsThatNeverEndAreGivenUp) {
  DirectionWatch watch(2);
  const std::vector<DirectionPart> parts = {{.worker = WorkerId(1), .incarnation = Incarnation(1)}};
  for (int64_t round = 0; round < 100; ++round) watch.OnRound(Round(round), parts);
  EXPECT_LE(watch.num_open_rounds(), 17u);
}

TEST(DirectionWatchTest, PartsOfNothingSayNothing) {
  DirectionWatch watch(1);
  const std::vector<DirectionPart> nothing(2);
  for (int64_t round = 0; round < 300; ++round) {
    EXPECT_THAT(watch.OnRound(Round(round), nothing), IsEmpty());
    EXPECT_THAT(watch.OnRound(Round(round), {}), IsEmpty());
  }
}

}  // namespace
}  // namespace lodestar::shard
