// SPDX-License-Identifier: Apache-2.0

// Tests numbers that are not finite: in contributions, after an update, and in weights that are
// loaded.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/job/robust_mean.h"
#include "common/messages/contribution.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/parameter_shard.h"
#include "server/shard/testing/test_cluster.h"

namespace lodestar::shard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Log final : public ShardObserver {
 public:
  void OnFault(const sync::WorkerFault& fault) override { faults.push_back(fault); }
  void OnDiverged(Round round, absl::string_view text) override {
    rounds.push_back(round.value());
    texts.emplace_back(text);
  }
  std::vector<sync::WorkerFault> faults;
  std::vector<int64_t> rounds;
  std::vector<std::string> texts;
};

job::JobSpec Job(job::Mode mode) {
  job::JobSpec job;
  job.model = {"small-mlp", params::MlpSpec{{13, 17, 9, 5}}};
  job.mode = mode;
  job.optimizer.kind = job::OptimizerKind::kSgd;
  job.outer_optimizer = job::OuterOptimizerKind::kAverage;
  job.schedule.peak = 1.0;
  job.schedule.total_rounds = 100;
  job.batch_size = 1;
  job.bucket_bytes = 256;
  return job;
}

std::vector<float> Filled(const TestCluster& cluster, float value) {
  return std::vector<float>(cluster.layout().num_elements(), value);
}

ContributionKey KeyOf(const job::JobSpec& job, int worker, int64_t round = 0) {
  ContributionKey key = TestCluster::Key(worker, round, round);
  key.kind = messages::RoundContributionKind(job);
  return key;
}

TEST(DivergenceTest, WhatIsBeyondAllReasonIsRefusedAtTheDoorByName) {
  for (const job::Mode mode : {job::Mode::kSync, job::Mode::kAsync, job::Mode::kLocalSgd}) {
    Log log;
    const job::JobSpec job = Job(mode);
    TestCluster cluster({.job = job, .observer = &log});
    cluster.LoadConstant(0.0f);
    cluster.SetMembers(2);
    cluster.OpenRound(0, {1, 1}, 1.0);
    std::vector<float> large = Filled(cluster, 1.0f);
    large[cluster.buckets()[1].range.begin + 3] = -2e18f;
    EXPECT_THAT(
        *cluster.PushBucket(KeyOf(job, 1), 1, large)->outcome,
        StatusIs(absl::StatusCode::kAborted,
                 AllOf(HasSubstr("worker 1, tensor '"),
                       HasSubstr(" (bucket 1, element 3): the number is NaN, Inf, or not below"),
                       HasSubstr("register again"))));
    ContributionKey scaled = KeyOf(job, 2);
    scaled.scale = 3e38f;
    EXPECT_THAT(cluster.PushAll(scaled, Filled(cluster, 1.0f)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("scale is 3e+38")));
    EXPECT_THAT(log.texts, IsEmpty()) << "the weights are untouched";
    ASSERT_FALSE(log.faults.empty());
    EXPECT_EQ(log.faults[0].worker, WorkerId(1));
    EXPECT_EQ(log.faults[0].incarnation, Incarnation(1));
    EXPECT_EQ(log.faults[0].round, Round(0));
    EXPECT_EQ(log.faults[0].kind, sync::WorkerFault::Kind::kNotFinite);
    EXPECT_THAT(log.faults[0].text, Not(HasSubstr("register again"))) << "that is for the worker";
    if (mode == job::Mode::kLocalSgd) continue;  // weights have no scale
    scaled.scale = 60000.0f;
    EXPECT_THAT(cluster.PushAll(scaled, Filled(cluster, 1e15f)),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("times the scale 60000")));
    ASSERT_EQ(log.faults.size(), 2);
    EXPECT_EQ(log.faults[1].worker, WorkerId(2));
    EXPECT_THAT(log.texts, IsEmpty());
  }
}

// All contributions are finite, and yet the update overflows.
TEST(DivergenceTest, UpdateThatSpoilsTheNumbersIsToldAndNobodyGetsThem) {
  for (const job::Mode mode : {job::Mode::kSync, job::Mode::kAsync}) {
    Log log;
    job::JobSpec job = Job(mode);
    job.schedule.peak = 1e30;
    TestCluster cluster({.job = job, .num_shards = 2, .observer = &log});
    cluster.LoadConstant(1.0f);
    cluster.SetMembers(1);
    cluster.OpenRound(0, {1}, 1e30);
    std::vector<float> gradient = Filled(cluster, 0.0f);
    gradient.back() = 1e17f;
    EXPECT_OK(cluster.PushAll(KeyOf(job, 1), gradient));
    const uint32_t last = cluster.buckets().back().index;
    EXPECT_THAT(log.rounds, ElementsAre(0));
    EXPECT_THAT(log.texts[0], HasSubstr(absl::StrCat("of bucket ", last, " NaN or Inf")));
    EXPECT_THAT(cluster.Read(last, 0).status(),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("the run has diverged")));
    EXPECT_OK(cluster.Read(0, 1).status()) << "the other buckets are as they should be";
    for (const std::optional<Round> round :
         {std::optional<Round>(), {Round(mode == job::Mode::kSync ? 1 : 0)}}) {
      absl::Status saved;
      cluster.shard(1).Snapshot(round, [&](const auto& state) { saved = state.status(); });
      EXPECT_THAT(saved, StatusIs(absl::StatusCode::kAborted, HasSubstr("has diverged")));
    }
    EXPECT_THAT(*cluster.PushBucket(KeyOf(job, 1, 1), last, gradient)->outcome,
                StatusIs(absl::StatusCode::kAborted, HasSubstr("has diverged")));
    EXPECT_THAT(cluster.shard(1).WaitingFor(), HasSubstr("has diverged"));
    EXPECT_THAT(log.faults, IsEmpty()) << "no worker is to blame";
  }
}

TEST(DivergenceTest, WeightsThatGrowBeyondTheRangeAreSeenInEveryOptimizer) {
  for (const job::OptimizerKind kind :
       {job::OptimizerKind::kSgd, job::OptimizerKind::kMomentum, job::OptimizerKind::kNesterov,
        job::OptimizerKind::kAdamW}) {
    Log log;
    job::JobSpec job = Job(job::Mode::kSync);
    job.optimizer.kind = kind;
    TestCluster cluster({.job = job, .observer = &log});
    cluster.LoadConstant(1.0f);
    cluster.SetMembers(1);
    cluster.OpenRound(0, {1}, 3e38);
    EXPECT_OK(cluster.PushAll(KeyOf(job, 1), Filled(cluster, -10.0f)));
    if (log.rounds.empty()) {  // AdamW's first step is as long as the learning rate
      cluster.OpenRound(1, {1}, 3e38);
      EXPECT_OK(cluster.PushAll(KeyOf(job, 1, 1), Filled(cluster, -10.0f)));
    }
    EXPECT_EQ(log.rounds.size(), cluster.buckets().size()) << NameOf(kind);
  }
}

TEST(DivergenceTest, OuterOptimizersAreCheckedToo) {
  for (const job::OuterOptimizerKind outer :
       {job::OuterOptimizerKind::kNesterov, job::OuterOptimizerKind::kAverage,
        job::OuterOptimizerKind::kSgd}) {
    Log log;
    job::JobSpec job = Job(job::Mode::kLocalSgd);
    job.outer_optimizer = outer;
    job.outer_learning_rate = 3e38;
    TestCluster cluster({.job = job, .observer = &log});
    cluster.LoadConstant(1.0f);
    cluster.SetMembers(1);
    cluster.OpenRound(0, {1}, 1.0);
    ContributionKey key = KeyOf(job, 1);
    const bool is_average = outer == job::OuterOptimizerKind::kAverage;
    if (!is_average) key.kind = messages::ContributionKind::kPseudoGradient;
    EXPECT_OK(cluster.PushAll(key, Filled(cluster, 10.0f)));
    EXPECT_EQ(log.rounds.size(), is_average ? 0 : cluster.buckets().size());
  }
}

TEST(DivergenceTest, ReportedRoundThatWasNotPushedIsAFaultOfThatWorker) {
  Log log;
  const job::JobSpec job = Job(job::Mode::kSync);
  TestCluster cluster({.job = job, .observer = &log});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(3);
  cluster.OpenRound(0, {1, 1, 1}, 1.0);
  EXPECT_OK(cluster.PushAll(KeyOf(job, 1), Filled(cluster, 1.0f)));
  // Worker 2 has pushed one bucket. Worker 3 waits, because its contribution is added after that of
  // worker 2.
  cluster.PushBucket(KeyOf(job, 2), 0, Filled(cluster, 1.0f));
  const std::vector<sync::RosterMember> reported = {{WorkerId(1), Incarnation(1), 1},
                                                    {WorkerId(2), Incarnation(1), 1}};
  cluster.shard(0).CloseRound(Round(0), reported);
  ASSERT_EQ(log.faults.size(), 1);
  EXPECT_EQ(log.faults[0].worker, WorkerId(2));
  EXPECT_EQ(log.faults[0].kind, sync::WorkerFault::Kind::kNotPushed);
  EXPECT_THAT(log.faults[0].text,
              HasSubstr("reported round 0 but has not sent its part of bucket 1"));

  cluster.Drop(2);
  cluster.PushAll(KeyOf(job, 3), Filled(cluster, 1.0f)).IgnoreError();
  EXPECT_OK(cluster.Read(1, 1).status()) << "the round has gone on without it";
  cluster.shard(0).CloseRound(Round(0), reported);
  EXPECT_EQ(log.faults.size(), 1) << "past rounds are complete";
}

// In every mode, a contribution that is a thousand times too long has no more effect than one of
// usual length. It is reported once for each bucket.
TEST(DivergenceTest, WhatIsFarTooLongCountsAsIfItWereAsLongAsTheOthersAndIsTold) {
  for (const char* const robust : {"none", "median"}) {
    for (const job::Mode mode : {job::Mode::kSync, job::Mode::kAsync, job::Mode::kLocalSgd}) {
      if (mode == job::Mode::kAsync && robust != std::string("none")) continue;
      SCOPED_TRACE(testing::Message() << "mode " << static_cast<int>(mode) << " " << robust);
      const auto train = [&](float wild, double norm_limit, Log& log) {
        job::JobSpec job = Job(mode);
        job.norm_limit = norm_limit;
        job.robust_mean = *job::ParseRobustMean(robust);
        job.schedule.peak = 0.01;
        TestCluster cluster({.job = job, .num_shards = 2, .observer = &log});
        cluster.LoadConstant(0.0f);
        cluster.SetMembers(3);
        int64_t version = 0;
        const int64_t num_rounds =
            mode == job::Mode::kAsync ? 17 : 6;  // until the usual norm is known
        for (int64_t round = 0; round < num_rounds; ++round) {
          if (mode != job::Mode::kAsync) cluster.OpenRound(round, {1, 1, 1}, 0.01);
          for (const int worker : {1, 2, 3}) {
            // In asynchronous mode, each grant has a round number of its own.
            const int64_t number = mode == job::Mode::kAsync ? version : round;
            ContributionKey key = KeyOf(job, worker, number);
            key.base_version = Version(version);
            if (mode == job::Mode::kAsync) ++version;
            const bool is_wild = worker == 2 && round == num_rounds - 1;
            // In local SGD, contributions are weights. Only the change of the weights in this round
            // must have the length 1.
            const float usual = mode == job::Mode::kLocalSgd ? static_cast<float>(round + 1) : 1.0f;
            EXPECT_OK(cluster.PushAll(key, Filled(cluster, is_wild ? wild * usual : usual)));
          }
          if (mode != job::Mode::kAsync) ++version;
        }
        return *cluster.Weights(version);
      };
      Log quiet, loud, off;
      const std::vector<float> wanted = train(1.0f, 10.0, quiet);
      EXPECT_THAT(quiet.faults, IsEmpty());
      EXPECT_THAT(train(1000.0f, 10.0, loud),
                  testing::Pointwise(testing::FloatNear(1e-5f), wanted));
      // In asynchronous mode, eight contributions make up one round of NormWatch. That round has
      // not ended here, so there is no finding yet.
      if (mode != job::Mode::kAsync) {
        ASSERT_FALSE(loud.faults.empty());
        EXPECT_EQ(loud.faults[0].worker, WorkerId(2));
        EXPECT_EQ(loud.faults[0].round, Round(5));
        EXPECT_EQ(loud.faults[0].kind, sync::WorkerFault::Kind::kTooLong);
        EXPECT_THAT(loud.faults[0].text, HasSubstr("--norm_limit"));
      }
      const std::vector<float> unwatched = train(1000.0f, 0.0, off);
      if (robust == std::string("none")) {  // a median leaves it out anyway
        EXPECT_THAT(unwatched, testing::Not(testing::Pointwise(testing::FloatNear(1e-1f), wanted)));
      }
      EXPECT_THAT(off.faults, IsEmpty());
    }
  }
}

TEST(DivergenceTest, WhoPointsAwayFromTheOthersIsToldOfAndCountsAllTheSame) {
  for (const job::Mode mode : {job::Mode::kSync, job::Mode::kLocalSgd}) {
    for (const double clip_norm : {0.0, 1.0}) {
      if (mode == job::Mode::kLocalSgd && clip_norm > 0.0) continue;
      for (const double norm_limit : {0.0, 10.0}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(mode) << " " << clip_norm);
        Log log;
        job::JobSpec job = Job(mode);
        job.norm_limit = norm_limit;
        job.clip_norm = clip_norm;
        job.schedule.peak = 0.01;
        TestCluster cluster({.job = job, .num_shards = 2, .observer = &log});
        cluster.LoadConstant(1.0f);
        cluster.SetMembers(4);
        for (int64_t round = 0; round < 40; ++round) {
          cluster.OpenRound(round, {1, 1, 1, 1}, 0.01);
          const std::vector<float> weights = *cluster.Weights(round);
          for (const int worker : {1, 2, 3, 4}) {
            std::vector<float> sent = Filled(cluster, worker == 3 ? -0.25f : 0.25f);
            if (mode == job::Mode::kLocalSgd) {
              for (size_t i = 0; i < sent.size(); ++i) sent[i] = weights[i] - sent[i];
            }
            EXPECT_OK(cluster.PushAll(KeyOf(job, worker, round), sent));
          }
        }
        if (norm_limit == 0.0) {
          EXPECT_THAT(log.faults, IsEmpty());
          continue;
        }
        // Both shards find the worker from the 26th round on.
        ASSERT_EQ(log.faults.size(), 2u * (40 - 25));
        EXPECT_EQ(log.faults[0].round, Round(25));
        for (const sync::WorkerFault& fault : log.faults) {
          EXPECT_EQ(fault.worker, WorkerId(3));
          EXPECT_EQ(fault.incarnation, Incarnation(1));
          EXPECT_EQ(fault.kind, sync::WorkerFault::Kind::kOpposed);
          EXPECT_THAT(
              fault.text,
              HasSubstr(
                  "was -1.000 on average in its last rounds; for the other workers it was 1.000"));
        }
        EXPECT_LT(cluster.Weights(40)->front(), 1.0f) << "it counts";
      }
    }
  }
}

TEST(DivergenceTest, WorkersWithWeightsOfTheirOwnPullToAllSides) {
  Log log;
  job::JobSpec job = Job(job::Mode::kLocalSgd);
  job.norm_limit = 10.0;
  job.outer_optimizer = job::OuterOptimizerKind::kEasgd;
  TestCluster cluster({.job = job, .observer = &log});
  cluster.LoadConstant(1.0f);
  cluster.SetMembers(4);
  for (int64_t round = 0; round < 40; ++round) {
    cluster.OpenRound(round, {1, 1, 1, 1});
    for (const int worker : {1, 2, 3, 4}) {
      EXPECT_OK(cluster.PushAll(KeyOf(job, worker, round),
                                Filled(cluster, worker == 3 ? -0.25f : 0.25f)));
    }
  }
  EXPECT_THAT(log.faults, IsEmpty());
}

// A worker that sends the negative of the weights sends a vector of the same length as the others.
// But its change is far longer than theirs, and would move the mean far away.
TEST(DivergenceTest, OfWeightsTheChangeIsWhatIsLong) {
  Log log;
  const job::JobSpec job = Job(job::Mode::kLocalSgd);
  TestCluster cluster({.job = job, .observer = &log});
  cluster.LoadConstant(100.0f);
  cluster.SetMembers(3);
  for (int64_t round = 0; round < 8; ++round) {
    cluster.OpenRound(round, {1, 1, 1});
    const float weight = cluster.Weights(round)->front();
    // The limit on changes holds in the first rounds too, when the usual norm is not known yet.
    for (const int worker : {1, 2, 3}) {
      EXPECT_OK(cluster.PushAll(KeyOf(job, worker, round),
                                Filled(cluster, worker == 3 ? -weight : weight + 1.0f)));
    }
    const float change = cluster.Weights(round + 1)->front() - weight;
    EXPECT_LT(std::abs(change), 2.0f) << "round " << round;
  }
  ASSERT_FALSE(log.faults.empty());
  for (const sync::WorkerFault& fault : log.faults) {
    EXPECT_EQ(fault.worker, WorkerId(3));
    EXPECT_EQ(fault.kind, sync::WorkerFault::Kind::kTooLong);
  }
}

TEST(DivergenceTest, WeightsTravelAsTheyAre) {
  const job::JobSpec job = Job(job::Mode::kLocalSgd);
  TestCluster cluster({.job = job});
  cluster.LoadConstant(1.0f);
  cluster.SetMembers(1);
  cluster.OpenRound(0, {1});
  ContributionKey key = KeyOf(job, 1);
  key.scale = 2.0f;
  EXPECT_THAT(cluster.PushAll(key, Filled(cluster, 1.0f)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("scale is 2; weights")));
}

// The contribution of a single worker is never scaled, even if its gradients have a spike. So
// training with one worker equals plain training.
TEST(DivergenceTest, AWorkerThatIsAloneIsComparedWithNobody) {
  Log log;
  job::JobSpec job = Job(job::Mode::kSync);
  TestCluster cluster({.job = job, .observer = &log});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(1);
  for (int64_t round = 0; round < 20; ++round) {
    cluster.OpenRound(round, {1}, 1.0);
    EXPECT_OK(cluster.PushAll(KeyOf(job, 1, round), Filled(cluster, round == 19 ? 1000.0f : 1.0f)));
  }
  EXPECT_THAT(*cluster.Weights(20), testing::Each(-1019.0f));
  EXPECT_THAT(log.faults, IsEmpty());
}

TEST(DivergenceTest, WhatIsLoadedMustBeFinite) {
  const job::JobSpec job = Job(job::Mode::kSync);
  TestCluster cluster({.job = job});
  cluster.LoadConstant(1.0f);
  ShardState state;
  cluster.shard(0).Snapshot(std::nullopt, [&](const auto& saved) { state = *saved; });
  TestCluster other({.job = job});
  EXPECT_THAT(other.shard(0).LoadWeights([](params::ElementRange, absl::Span<float> weights) {
    std::fill(weights.begin(), weights.end(), std::numeric_limits<float>::infinity());
    return absl::OkStatus();
  }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("have NaN or Inf")));
  const_cast<Page*>(state.buckets[1].weights.get())->data()[0] = std::nanf("");
  TestCluster third({.job = job});
  EXPECT_THAT(RestoreFrom(state, third.shard(0), Round(0)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("have NaN or Inf")));
}

}  // namespace
}  // namespace lodestar::shard
