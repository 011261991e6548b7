// SPDX-License-Identifier: Apache-2.0

// Tests what must not change a single bit of the weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/robust_mean.h"
#include "common/messages/contribution.h"
#include "common/testing/status_matchers.h"
#include "server/optimizer/optimizer_factory.h"
#include "server/shard/parameter_shard.h"
#include "server/shard/testing/test_cluster.h"

namespace lodestar::shard {
namespace {

job::JobSpec SyncAdamW() {
  job::JobSpec job;
  job.mode = job::Mode::kSync;
  job.optimizer.kind = job::OptimizerKind::kAdamW;
  job.optimizer.weight_decay = 0.1;
  return job;
}

// SequentialTraining makes the same updates as the shards, in a single process.
class SequentialTraining {
 public:
  SequentialTraining(const params::Layout& layout, const job::JobSpec& job,
                     std::vector<float> weights)
      : layout_(layout),
        optimizer_(optimizer::MakeServerOptimizer(job)),
        weights_(std::move(weights)) {
    for (auto& state : state_) state.assign(weights_.size(), 0.0f);
  }

  void Step(const optimizer::OptimizerCall& call, const std::vector<float>& gradient) {
    optimizer::OptimizerVectors vectors = {.gradient = gradient,
                                           .weights_in = weights_,
                                           .weights_out = absl::MakeSpan(weights_),
                                           .state = {}};
    for (int i = 0; i < optimizer_->num_state_vectors(); ++i) {
      vectors.state[i] = absl::MakeSpan(state_[i]);
    }
    std::vector<params::ElementRange> decay;
    for (const params::TensorSpec& tensor : layout_.tensors()) {
      if (tensor.decay) decay.push_back({tensor.offset, tensor.offset + tensor.num_elements()});
    }
    optimizer_->Apply(call, vectors, decay);
  }
  const std::vector<float>& weights() const { return weights_; }

 private:
  const params::Layout layout_;
  const std::unique_ptr<optimizer::Optimizer> optimizer_;
  std::vector<float> weights_;
  std::vector<float> state_[optimizer::kMaxStateVectors];
};

constexpr int kRounds = 3;

// Trains with three workers, which push their vectors in the given order, every bucket in turn.
std::vector<float> TrainInOrder(const job::JobSpec& job, int num_shards,
                                const std::vector<int>& order) {
  TestCluster cluster({.job = job, .num_shards = num_shards});
  cluster.LoadInitial();
  cluster.SetMembers(3);
  for (int round = 0; round < kRounds; ++round) {
    cluster.OpenRound(round, {3, 5, 4}, 0.01);
    std::vector<std::vector<float>> vectors;
    for (int worker = 0; worker <= 3; ++worker) {
      vectors.push_back(cluster.Vector(10 * round + worker));
    }
    std::vector<std::shared_ptr<TestCluster::Push>> pushes;
    for (int worker : order) {
      for (const params::Bucket& bucket : cluster.buckets()) {
        ContributionKey key = TestCluster::Key(worker, round, round);
        key.kind = messages::RoundContributionKind(job);
        pushes.push_back(cluster.PushBucket(key, bucket.index, vectors[worker]));
      }
    }
    for (const auto& push : pushes) EXPECT_TRUE(push->outcome.has_value() && push->outcome->ok());
  }
  auto weights = cluster.Weights(kRounds);
  EXPECT_OK(weights);
  return weights.ok() ? *weights : std::vector<float>();
}

TEST(ShardNumericsTest, AnyOrderOfArrivalGivesTheSameBits) {
  const std::vector<float> expected = TrainInOrder(SyncAdamW(), 1, {1, 2, 3});
  std::vector<int> order = {1, 2, 3};
  while (std::next_permutation(order.begin(), order.end())) {
    EXPECT_TRUE(SameBits(TrainInOrder(SyncAdamW(), 1, order), expected));
  }
  job::JobSpec other = SyncAdamW();
  other.optimizer.weight_decay = 0.2;
  EXPECT_FALSE(SameBits(TrainInOrder(other, 1, order), expected));
}

job::JobSpec Directions() {
  job::JobSpec job;
  job.mode = job::Mode::kLocalSgd;
  job.outer_optimizer = job::OuterOptimizerKind::kSgd;
  job.outer_learning_rate = 1.0;
  job.outer_reduction = job::OuterReduction::kDirection;
  return job;
}

TEST(ShardNumericsTest, MeanDirectionsHaveTheSameBitsInAnyOrderOfArrival) {
  job::JobSpec job = Directions();
  job.outer_optimizer = job::OuterOptimizerKind::kNesterov;
  const std::vector<float> expected = TrainInOrder(job, 1, {1, 2, 3});
  std::vector<int> order = {1, 2, 3};
  while (std::next_permutation(order.begin(), order.end())) {
    EXPECT_TRUE(SameBits(TrainInOrder(job, 1, order), expected));
  }
  job.outer_reduction = job::OuterReduction::kMean;
  EXPECT_FALSE(SameBits(TrainInOrder(job, 1, order), expected));
}

double NormOf(const std::vector<float>& values, params::ElementRange range) {
  double square_sum = 0.0;
  for (int64_t e = range.begin; e < range.end; ++e) square_sum += double{values[e]} * values[e];
  return std::sqrt(square_sum);
}

// Two workers push contributions `a` and `b` with these weights. The result must agree with a
// computation in doubles, for each tensor of a bucket.
TEST(ShardNumericsTest, EachTensorMovesInTheMeanDirectionAsFarAsInTheMean) {
  constexpr double kWeights[] = {0.25, 0.75};
  TestCluster cluster({.job = Directions(), .has_averaged = true, .has_embedding = true});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(2);
  cluster.OpenRound(0, {2, 6});
  std::vector<std::vector<float>> sent;
  for (const int worker : {1, 2}) {
    sent.push_back(cluster.Vector(worker));
    ContributionKey key = TestCluster::Key(worker, 0, 0);
    key.kind = messages::ContributionKind::kPseudoGradient;
    EXPECT_OK(cluster.PushAll(key, sent.back()));
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, cluster.Weights(1));
  int num_cut = 0;
  for (const params::Bucket& bucket : cluster.buckets()) {
    for (const params::TensorSpec& tensor : cluster.layout().tensors()) {
      const params::ElementRange part = {
          std::max(tensor.offset, bucket.range.begin),
          std::min(tensor.offset + tensor.num_elements(), bucket.range.end)};
      if (part.begin >= part.end) continue;
      if (part.size() < tensor.num_elements()) ++num_cut;
      const double norms[] = {NormOf(sent[0], part), NormOf(sent[1], part)};
      const bool is_mean = tensor.embedding || tensor.averaged;
      std::vector<double> wanted;
      double square_sum = 0.0;
      for (int64_t e = part.begin; e < part.end; ++e) {
        double element = 0.0;
        for (const int i : {0, 1}) {
          element += kWeights[i] * sent[i][e] / (is_mean ? 1.0 : norms[i]);
        }
        wanted.push_back(element);
        square_sum += element * element;
      }
      const double length = kWeights[0] * norms[0] + kWeights[1] * norms[1];
      const double factor = is_mean ? 1.0 : length / std::sqrt(square_sum);
      for (int64_t e = part.begin; e < part.end; ++e) {
        ASSERT_NEAR(weights[e], -factor * wanted[e - part.begin], 1e-5) << tensor.name << " " << e;
      }
    }
  }
  EXPECT_GT(num_cut, 2) << "tensors that lie in several buckets are shown, too";
}

// With a mean of directions, the step has the same length for any number of workers. With a plain
// mean of four vectors at right angles, it has half the length.
TEST(ShardNumericsTest, AStepAlongTheMeanDirectionIsAsLongWithFourWorkersAsWithOne) {
  const auto length_with = [](int num_workers, job::OuterReduction reduction) {
    job::JobSpec job = Directions();
    job.outer_reduction = reduction;
    TestCluster cluster({.job = job});
    cluster.LoadConstant(0.0f);
    cluster.SetMembers(num_workers);
    cluster.OpenRound(0, std::vector<int64_t>(num_workers, 1));
    const auto size = static_cast<size_t>(cluster.layout().num_elements());
    for (int worker = 1; worker <= num_workers; ++worker) {
      ContributionKey key = TestCluster::Key(worker, 0, 0);
      key.kind = messages::ContributionKind::kPseudoGradient;
      std::vector<float> values(size, 0.0f);
      for (const params::TensorSpec& tensor : cluster.layout().tensors()) {
        values[tensor.offset + worker] = 3.0f;
      }
      EXPECT_OK(cluster.PushAll(key, values));
    }
    return NormOf(*cluster.Weights(1), {0, static_cast<int64_t>(size)});
  };
  const double alone = length_with(1, job::OuterReduction::kDirection);
  EXPECT_NEAR(length_with(4, job::OuterReduction::kDirection), alone, 1e-5);
  EXPECT_NEAR(length_with(4, job::OuterReduction::kMean), alone / 2, 1e-5);
}

// In asynchronous local SGD, the contributions of all workers together must give the same weights
// as one round of local SGD. This must hold for windows of the planned length and for shorter ones.
TEST(ShardNumericsTest, AsyncLocalSgdIsLocalSgdWhereAllReport) {
  for (const job::OuterOptimizerKind outer :
       {job::OuterOptimizerKind::kNesterov, job::OuterOptimizerKind::kSgd}) {
    for (const std::vector<int64_t>& samples :
         {std::vector<int64_t>{8, 8, 8}, std::vector<int64_t>{8, 4, 2}}) {
      const auto train = [&](job::Mode mode) {
        job::JobSpec job;
        job.mode = mode;
        job.batch_size = 4;
        job.local_steps = 2;
        job.outer_optimizer = outer;
        TestCluster cluster({.job = job, .num_shards = 2});
        cluster.LoadInitial();
        cluster.SetMembers(3);
        for (int round = 0; round < kRounds; ++round) {
          if (job::HasRosters(job)) cluster.OpenRound(round, {8, 8, 8}, 0.01);
          for (int worker = 1; worker <= 3; ++worker) {
            const int base = job::HasRosters(job) ? round : 3 * round;
            ContributionKey key = TestCluster::Key(worker, round, base);
            key.kind = messages::RoundContributionKind(job);
            key.num_samples = samples[worker - 1];
            EXPECT_OK(cluster.PushAll(key, cluster.Vector(10 * round + worker)));
          }
        }
        return *cluster.Weights(job::HasRosters(job) ? kRounds : 3 * kRounds);
      };
      EXPECT_TRUE(SameBits(train(job::Mode::kAsyncLocalSgd), train(job::Mode::kLocalSgd)))
          << NameOf(outer) << " " << samples[1];
    }
  }
}

// Returns the weights of a shard after a worker has sent Vector(1) and then `second` * Vector(1).
// In every tensor, the second contribution is a multiple of the momentum.
std::vector<float> AfterTwo(job::JobSpec job, float second,
                            job::MomentumCorrectionKind correction) {
  job.mode = job::Mode::kAsyncLocalSgd;
  job.batch_size = 4;
  job.momentum_correction = correction;
  TestCluster cluster({.job = job, .has_averaged = true, .has_embedding = true, .num_shards = 2});
  cluster.LoadConstant(0.5f);
  cluster.SetMembers(1);
  std::vector<float> values = cluster.Vector(1);
  for (const int round : {0, 1}) {
    ContributionKey key = TestCluster::Key(1, round, round);
    key.kind = messages::ContributionKind::kPseudoGradient;
    key.encoding = job.push_encoding;
    EXPECT_OK(cluster.PushAll(key, values));
    for (float& value : values) value *= second;
  }
  return *cluster.Weights(2);
}

TEST(ShardNumericsTest, AContributionAgainstTheMomentumIsCorrectedInEachTensorButEmbeddings) {
  constexpr double kRate = 0.5;
  constexpr double kBeta = 0.75;
  job::JobSpec job;
  job.outer_learning_rate = kRate;
  job.outer_momentum = kBeta;
  const params::Layout layout =
      TestCluster({.job = job, .has_averaged = true, .has_embedding = true}).layout();
  const std::vector<float> v = TestCluster({.job = job}).Vector(1);
  for (const double second : {-1.0, -3.0}) {
    // The second contribution is `second` * v, and the momentum is v: they point in opposite
    // directions. So the correction multiplies the contribution by 1 - length / (length + 1 -
    // kBeta).
    const double length = -second;
    const double corrected = second * (1.0 - length / (length + 1.0 - kBeta));
    const std::vector<float> weights =
        AfterTwo(job, static_cast<float>(second), job::MomentumCorrectionKind::kHeloco);
    for (const params::TensorSpec& tensor : layout.tensors()) {
      const double d = tensor.embedding ? second : corrected;
      const double of_v =
          tensor.averaged ? -(1.0 + second) : -kRate * (1.0 + kBeta + d + kBeta * (kBeta + d));
      for (int64_t e = tensor.offset; e < tensor.offset + tensor.num_elements(); ++e) {
        ASSERT_NEAR(weights[e], 0.5 + of_v * v[e], 1e-5) << tensor.name << " " << e;
      }
    }
  }
}

TEST(ShardNumericsTest, AContributionWithTheMomentumKeepsItsBits) {
  for (const params::Encoding encoding : {params::Encoding::kFp32, params::Encoding::kBf16}) {
    job::JobSpec job;
    job.push_encoding = encoding;
    const std::vector<float> plain = AfterTwo(job, 0.5f, job::MomentumCorrectionKind::kNone);
    EXPECT_TRUE(SameBits(AfterTwo(job, 0.5f, job::MomentumCorrectionKind::kHeloco), plain));
    EXPECT_FALSE(SameBits(AfterTwo(job, -0.5f, job::MomentumCorrectionKind::kHeloco),
                          AfterTwo(job, -0.5f, job::MomentumCorrectionKind::kNone)));
  }
}

job::JobSpec Anchored(job::Anchor anchor, job::OuterOptimizerKind outer) {
  job::JobSpec job;
  job.mode = job::Mode::kAsyncLocalSgd;
  job.batch_size = 4;
  job.outer_optimizer = outer;
  job.outer_learning_rate = 0.5;
  job.anchor = anchor;
  return job;
}

// Pushes a contribution of a worker that has changed the weights from `base` to base + change. The
// contribution has the kind that the job wants.
void PushChange(TestCluster& cluster, const job::JobSpec& job, int worker, int64_t round,
                const std::vector<float>& base, const std::vector<float>& change) {
  ContributionKey key = TestCluster::Key(worker, round, round);
  key.kind = messages::RoundContributionKind(job);
  std::vector<float> values(base.size());
  for (size_t i = 0; i < base.size(); ++i) {
    const float local = base[i] - change[i];
    // Workers compute their pseudo-gradient with the same expression, so all bits are the same.
    values[i] = key.kind == messages::ContributionKind::kWeights ? local : base[i] - local;
  }
  EXPECT_OK(cluster.PushAll(key, values));
}

TEST(ShardNumericsTest, WhereNothingIsStaleBothAnchorsGiveTheSameBits) {
  for (const job::OuterOptimizerKind outer :
       {job::OuterOptimizerKind::kNesterov, job::OuterOptimizerKind::kSgd}) {
    std::vector<std::vector<float>> weights;
    for (const job::Anchor anchor : {job::Anchor::kWorker, job::Anchor::kServer}) {
      const job::JobSpec job = Anchored(anchor, outer);
      TestCluster cluster({.job = job, .has_averaged = true, .num_shards = 2});
      cluster.LoadInitial();
      cluster.SetMembers(2);
      // There are two workers, so two contributions make one outer step.
      for (int round = 0; round < 6; ++round) {
        PushChange(cluster, job, 1 + round % 2, round, *cluster.Weights(round),
                   cluster.Vector(round));
      }
      weights.push_back(*cluster.Weights(6));
    }
    EXPECT_TRUE(SameBits(weights[0], weights[1])) << static_cast<int>(outer);
  }
}

TEST(ShardNumericsTest, TheServersAnchorLeadsTowardsTheWorkersWeights) {
  const job::JobSpec job = Anchored(job::Anchor::kServer, job::OuterOptimizerKind::kSgd);
  TestCluster cluster({.job = job, .has_averaged = true});
  cluster.LoadInitial();
  cluster.SetMembers(1);
  const std::vector<float> base = *cluster.Weights(0);
  PushChange(cluster, job, 1, 0, base, cluster.Vector(1));
  const std::vector<float> now = *cluster.Weights(1);
  PushChange(cluster, job, 1, 1, base, cluster.Vector(2));  // computed on weights of one update ago
  const std::vector<float> after = *cluster.Weights(2);
  const std::vector<float> change = cluster.Vector(2);
  for (size_t i = 0; i < now.size(); ++i) {
    const double local = double{base[i]} - change[i];
    // For an averaged tensor, the result is the worker's value, the mean of one contribution.
    const bool is_averaged = cluster.layout().TensorAt(static_cast<int64_t>(i)).averaged;
    ASSERT_NEAR(after[i], is_averaged ? local : now[i] + 0.5 * (local - now[i]), 1e-6) << i;
  }
}

// With a quorum, contributions count in their order of arrival: no worker waits for one with a
// lower id.
TEST(ShardNumericsTest, ARobustMeanOfAQuorumHasTheSameBitsInAnyOrder) {
  job::JobSpec job = SyncAdamW();
  job.quorum = 3;
  const std::vector<float> sum = TrainInOrder(job, 1, {1, 2, 3});
  EXPECT_FALSE(SameBits(TrainInOrder(job, 1, {3, 2, 1}), sum)) << "only the plain mean has one";
  job.robust_mean = *job::ParseRobustMean("trimmed:1");
  const std::vector<float> expected = TrainInOrder(job, 1, {1, 2, 3});
  std::vector<int> order = {1, 2, 3};
  while (std::next_permutation(order.begin(), order.end())) {
    EXPECT_TRUE(SameBits(TrainInOrder(job, 1, order), expected));
  }
}

// In every mode that sums rounds, one of four workers cannot change the result as long as the
// others agree.
TEST(ShardNumericsTest, OneWildContributionOfFourIsLeftOut) {
  for (const double clip_norm : {0.0, 0.5}) {
    for (const char* const kind : {"median", "trimmed:1"}) {
      for (const job::Mode mode : {job::Mode::kSync, job::Mode::kLocalSgd}) {
        SCOPED_TRACE(absl::StrCat(kind, " mode ", static_cast<int>(mode), " clip ", clip_norm));
        job::JobSpec job = SyncAdamW();
        job.optimizer.kind = job::OptimizerKind::kSgd;
        job.mode = mode;
        job.clip_norm = clip_norm;
        const auto train = [&job](const std::vector<float>& factors) {
          TestCluster cluster({.job = job});
          cluster.LoadInitial();
          const int workers = static_cast<int>(factors.size());
          cluster.SetMembers(workers);
          for (int round = 0; round < kRounds; ++round) {
            cluster.OpenRound(round, std::vector<int64_t>(workers, 6), 0.01);
            for (int worker = 1; worker <= workers; ++worker) {
              ContributionKey key = TestCluster::Key(worker, round, round);
              key.kind = messages::RoundContributionKind(job);
              std::vector<float> values = cluster.Vector(round);
              for (float& value : values) value *= factors[worker - 1];
              EXPECT_OK(cluster.PushAll(key, values));
            }
          }
          return *cluster.Weights(kRounds);
        };
        const std::vector<float> alone = train({1.0f});
        job.robust_mean = *job::ParseRobustMean(kind);
        for (const float wild : {1.0f, -1.0f, 100.0f, 0.0f}) {
          // The mean of three equal values may be rounded.
          EXPECT_THAT(train({1.0f, wild, 1.0f, 1.0f}),
                      ::testing::Pointwise(::testing::FloatNear(1e-6f), alone))
              << wild;
        }
        // The plain mean is half of the honest gradient, because one of four workers sends the
        // negative. Clipping would hide that, because both gradients are longer than clip_norm.
        if (clip_norm > 0.0) continue;
        job.robust_mean = job::RobustMean();
        EXPECT_THAT(train({1.0f, -1.0f, 1.0f, 1.0f}),
                    ::testing::Not(::testing::Pointwise(::testing::FloatNear(1e-6f), alone)))
            << "unless it is asked for";
      }
    }
  }
}

TEST(ShardNumericsTest, AnyNumberOfShardsGivesTheSameBits) {
  for (double clip_norm : {0.0, 0.5}) {
    job::JobSpec job = SyncAdamW();
    job.clip_norm = clip_norm;
    const std::vector<float> one = TrainInOrder(job, 1, {1, 2, 3});
    EXPECT_TRUE(SameBits(TrainInOrder(job, 2, {3, 1, 2}), one)) << "clip_norm=" << clip_norm;
    EXPECT_TRUE(SameBits(TrainInOrder(job, 5, {2, 3, 1}), one)) << "clip_norm=" << clip_norm;
  }
}

// Returns the weights after a round of two workers that are granted these numbers of samples. The
// second worker says that it has used only `used` samples.
std::vector<float> TrainLocally(const job::JobSpec& job, const std::vector<int64_t>& granted,
                                int64_t used) {
  TestCluster cluster({.job = job});
  cluster.LoadConstant(1.0f);
  cluster.SetMembers(2);
  cluster.OpenRound(0, granted);
  for (int worker : {1, 2}) {
    ContributionKey key = TestCluster::Key(worker, 0, 0);
    key.kind = messages::RoundContributionKind(job);
    key.encoding = job.push_encoding;
    if (worker == 2) key.num_samples = used;
    EXPECT_OK(cluster.PushAll(key, cluster.Vector(worker)));
  }
  auto weights = cluster.Weights(1);
  EXPECT_OK(weights);
  return weights.ok() ? *weights : std::vector<float>();
}

TEST(ShardNumericsTest, ALocalRoundWeighsTheSamplesThatWereUsedAndAtMostThoseGranted) {
  for (const job::OuterOptimizerKind outer :
       {job::OuterOptimizerKind::kAverage, job::OuterOptimizerKind::kNesterov,
        job::OuterOptimizerKind::kSgd, job::OuterOptimizerKind::kAdam}) {
    for (const params::Encoding encoding :
         {params::Encoding::kFp32, params::Encoding::kBf16, params::Encoding::kFp16,
          params::Encoding::kInt8, params::Encoding::kInt4}) {
      SCOPED_TRACE(
          absl::StrCat("outer ", static_cast<int>(outer), " ", params::EncodingName(encoding)));
      job::JobSpec job;
      job.mode = job::Mode::kLocalSgd;
      job.outer_optimizer = outer;
      job.push_encoding = encoding;
      const std::vector<float> all = TrainLocally(job, {5, 3}, 0);
      EXPECT_TRUE(SameBits(TrainLocally(job, {5, 3}, 3), all));
      EXPECT_TRUE(SameBits(TrainLocally(job, {5, 3}, 1000), all));
      const std::vector<float> part = TrainLocally(job, {5, 3}, 1);
      const std::vector<float> wanted = TrainLocally(job, {5, 1}, 0);
      // A sum with the weights of the granted samples was rescaled to the samples that came. That
      // adds two roundings.
      EXPECT_THAT(part, ::testing::Pointwise(::testing::FloatNear(1e-6f), wanted));
      EXPECT_THAT(part, ::testing::Not(::testing::Pointwise(::testing::FloatNear(1e-3f), all)));
    }
  }
}

TEST(ShardNumericsTest, ClippingBoundsTheNormOfTheAverage) {
  job::JobSpec job;
  job.mode = job::Mode::kSync;
  job.optimizer.kind = job::OptimizerKind::kSgd;
  job.clip_norm = 0.5;
  TestCluster cluster({.job = job, .num_shards = 2});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(2);
  cluster.OpenRound(0, {1, 1}, 1.0);
  const std::vector<float> a = cluster.Vector(1);
  const std::vector<float> b = cluster.Vector(2);
  EXPECT_OK(cluster.PushAll(TestCluster::Key(1, 0, 0), a));
  EXPECT_OK(cluster.PushAll(TestCluster::Key(2, 0, 0), b));
  auto weights = cluster.Weights(1);
  ASSERT_OK(weights);
  double norm = 0.0;
  double mean_norm = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    norm += static_cast<double>((*weights)[i]) * (*weights)[i];
    mean_norm += std::pow((static_cast<double>(a[i]) + b[i]) / 2, 2);
  }
  ASSERT_GT(std::sqrt(mean_norm), 1.0) << "nothing to clip";
  EXPECT_NEAR(std::sqrt(norm), 0.5, 1e-5);
}

TEST(ShardNumericsTest, AsyncWithOneWorkerIsSequentialTraining) {
  job::JobSpec job = SyncAdamW();
  job.mode = job::Mode::kAsync;
  job.schedule = {.kind = job::ScheduleKind::kCosine,
                  .peak = 0.02,
                  .minimum = 0.0,
                  .warmup_rounds = 2,
                  .total_rounds = 10};
  TestCluster cluster({.job = job, .num_shards = 2});
  cluster.LoadInitial();
  cluster.SetMembers(1);
  auto initial = cluster.Weights(0);
  ASSERT_OK(initial);
  SequentialTraining sequential(cluster.layout(), job, *initial);
  for (int round = 0; round < 5; ++round) {
    const std::vector<float> gradient = cluster.Vector(round);
    EXPECT_OK(cluster.PushAll(TestCluster::Key(1, round, round), gradient));
    sequential.Step({.step = round + 1, .learning_rate = job.schedule.At(round)}, gradient);
  }
  auto weights = cluster.Weights(5);
  ASSERT_OK(weights);
  EXPECT_TRUE(SameBits(*weights, sequential.weights()));
}

TEST(ShardNumericsTest, SyncWithOneWorkerIsSequentialTraining) {
  const job::JobSpec job = SyncAdamW();
  TestCluster cluster({.job = job});
  cluster.LoadInitial();
  cluster.SetMembers(1);
  SequentialTraining sequential(cluster.layout(), job, *cluster.Weights(0));
  for (int round = 0; round < 3; ++round) {
    cluster.OpenRound(round, {7}, 0.01);
    EXPECT_OK(cluster.PushAll(TestCluster::Key(1, round, round), cluster.Vector(round)));
    sequential.Step({.step = round + 1, .learning_rate = 0.01}, cluster.Vector(round));
  }
  EXPECT_TRUE(SameBits(*cluster.Weights(3), sequential.weights()));
}

TEST(ShardNumericsTest, LockStepAsyncIsSync) {
  job::JobSpec sync = SyncAdamW();
  job::JobSpec lock_step = sync;
  lock_step.mode = job::Mode::kAsync;
  lock_step.max_rounds_ahead = 0;
  EXPECT_TRUE(SameBits(TrainInOrder(lock_step, 1, {2, 1, 3}), TrainInOrder(sync, 1, {1, 2, 3})));
}

TEST(ShardNumericsTest, AveragingEqualWorkersChangesNoBit) {
  job::JobSpec job;
  job.mode = job::Mode::kLocalSgd;
  job.outer_optimizer = job::OuterOptimizerKind::kAverage;
  for (int num_workers : {1, 2, 4}) {
    TestCluster cluster({.job = job});
    cluster.LoadInitial();
    cluster.SetMembers(num_workers);
    cluster.OpenRound(0, std::vector<int64_t>(num_workers, 6));
    const std::vector<float> now = cluster.Vector(5);
    for (int worker = 1; worker <= num_workers; ++worker) {
      ContributionKey key = TestCluster::Key(worker, 0, 0);
      key.kind = messages::ContributionKind::kWeights;
      EXPECT_OK(cluster.PushAll(key, now));
    }
    EXPECT_TRUE(SameBits(*cluster.Weights(1), now)) << num_workers << " workers";
  }
}

TEST(ShardNumericsTest, OuterNesterovWithoutMomentumMovesToTheAverage) {
  job::JobSpec job;
  job.mode = job::Mode::kLocalSgd;
  job.outer_optimizer = job::OuterOptimizerKind::kNesterov;
  job.outer_learning_rate = 1.0;
  job.outer_momentum = 0.0;
  TestCluster cluster({.job = job});
  cluster.LoadInitial();
  cluster.SetMembers(2);
  cluster.OpenRound(0, {1, 1});
  const std::vector<float> start = *cluster.Weights(0);
  std::vector<float> mean(start.size(), 0.0f);
  for (int worker = 1; worker <= 2; ++worker) {
    const std::vector<float> now = cluster.Vector(worker);
    std::vector<float> pseudo_gradient(start.size());
    for (size_t i = 0; i < start.size(); ++i) {
      pseudo_gradient[i] = start[i] - now[i];
      mean[i] += now[i] / 2;
    }
    ContributionKey key = TestCluster::Key(worker, 0, 0);
    key.kind = messages::ContributionKind::kPseudoGradient;
    EXPECT_OK(cluster.PushAll(key, pseudo_gradient));
  }
  auto weights = cluster.Weights(1);
  ASSERT_OK(weights);
  // The shard computes start - mean(start - now), which adds a rounding error to the mean. All
  // values are below 2.
  for (size_t i = 0; i < mean.size(); ++i) ASSERT_NEAR((*weights)[i], mean[i], 5e-7);
}

TEST(ShardNumericsTest, GoesOnFromASnapshotWithTheSameBits) {
  const job::JobSpec job = SyncAdamW();
  TestCluster straight({.job = job, .num_shards = 2});
  TestCluster restored({.job = job, .num_shards = 2});
  straight.LoadInitial();
  straight.SetMembers(1);
  const auto round = [](TestCluster& cluster, int64_t r) {
    cluster.OpenRound(r, {1}, 0.01);
    EXPECT_OK(cluster.PushAll(TestCluster::Key(1, r, r), cluster.Vector(static_cast<int>(r))));
  };
  round(straight, 0);
  round(straight, 1);
  for (int shard = 0; shard < 2; ++shard) {
    bool was_called = false;
    straight.shard(shard).Snapshot(Round(2), [&](absl::StatusOr<ShardState> state) {
      ASSERT_OK(state);
      was_called = true;
      ASSERT_OK(RestoreFrom(*state, restored.shard(shard), Round(2)));
    });
    EXPECT_TRUE(was_called);
  }
  restored.SetMembers(1);
  // The dedup table was restored too.
  EXPECT_THAT(restored.PushAll(TestCluster::Key(1, 1, 1), restored.Vector(9)),
              IsOkAndHolds(PushOutcome::kDuplicate));
  for (TestCluster* cluster : {&straight, &restored}) round(*cluster, 2);
  EXPECT_TRUE(SameBits(*straight.Weights(3), *restored.Weights(3)));
}

TEST(ShardNumericsTest, ASnapshotStaysWhatItWasWhileTrainingGoesOn) {
  TestCluster cluster({.job = SyncAdamW()});
  cluster.LoadInitial();
  cluster.SetMembers(1);
  ShardState at_one;
  bool was_called = false;
  // Snapshot() is called before round 1 begins. So the state of each bucket is captured when the
  // bucket begins round 1.
  cluster.shard(0).Snapshot(Round(1), [&](absl::StatusOr<ShardState> state) {
    ASSERT_OK(state);
    was_called = true;
    at_one = *std::move(state);
  });
  std::vector<float> expected;
  for (int64_t r = 0; r < 3; ++r) {
    cluster.OpenRound(r, {1}, 0.01);
    EXPECT_OK(cluster.PushAll(TestCluster::Key(1, r, r), cluster.Vector(static_cast<int>(r))));
    if (r == 0) expected = *cluster.Weights(1);
  }
  ASSERT_TRUE(was_called);
  std::vector<float> seen;
  for (const BucketState& bucket : at_one.buckets) {
    EXPECT_EQ(bucket.version, Version(1));
    ASSERT_EQ(bucket.counted.size(), 1);
    EXPECT_EQ(bucket.counted[0].last.round, Round(0));
    const float* const data = bucket.weights->data();
    seen.insert(seen.end(), data, data + bucket.range.size());
  }
  EXPECT_TRUE(SameBits(seen, expected));
  EXPECT_FALSE(SameBits(*cluster.Weights(3), expected));
}

TEST(ShardNumericsTest, ASnapshotMidRoundForgetsWhatIsNotApplied) {
  TestCluster cluster({.job = SyncAdamW()});
  cluster.LoadInitial();
  cluster.SetMembers(2);
  cluster.OpenRound(0, {1, 1});
  EXPECT_OK(cluster.PushAll(TestCluster::Key(1, 0, 0), cluster.Vector(1)));
  bool was_called = false;
  cluster.shard(0).Snapshot(std::nullopt, [&](absl::StatusOr<ShardState> state) {
    ASSERT_OK(state);
    was_called = true;
    for (const BucketState& bucket : state->buckets) EXPECT_TRUE(bucket.counted.empty());
  });
  EXPECT_TRUE(was_called);
}

}  // namespace
}  // namespace lodestar::shard
