// SPDX-License-Identifier: Apache-2.0

// Tests one exchange of elastic averaging: the weights that the rules of workers and servers give.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "common/job/job_spec.h"
#include "common/params/layout.h"
#include "common/testing/status_matchers.h"
#include "kernels/factory/device_factory.h"
#include "kernels/vectors/reduce.h"
#include "server/optimizer/optimizer_factory.h"
#include "worker/trainer/weights_merge.h"

namespace lodestar {
namespace {

constexpr int64_t kElements = 203;
// Some roundings of elements of about 1.
constexpr double kRounding = 1e-6;

kernels::Buf BufOf(std::vector<float>& vector) {
  return {vector.data(), kernels::DType::kF32, static_cast<int64_t>(vector.size())};
}

struct ElasticWorker {
  std::vector<float> local;
  std::vector<float> global;
  std::vector<float> contributed = std::vector<float>(kElements);
  double share = 0.0;
};

// Checks one exchange of workers with these shares of the round's samples.
void ExpectElasticExchange(const std::vector<double>& shares, double beta) {
  job::JobSpec job;
  job.mode = job::Mode::kLocalSgd;
  job.outer_optimizer = job::OuterOptimizerKind::kEasgd;
  job.outer_learning_rate = beta;
  const std::unique_ptr<kernels::Device> device = *factory::MakeDevice("cpu", 1, nullptr);
  const std::unique_ptr<optimizer::Optimizer> optimizer = optimizer::MakeServerOptimizer(job);
  EXPECT_EQ(optimizer->num_state_vectors(), 0);

  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto random_vector = [&] {
    std::vector<float> vector(kElements);
    for (float& element : vector) element = normal(random);
    return vector;
  };
  std::vector<float> center = random_vector();
  std::vector<double> sum(center.begin(), center.end());
  std::vector<double> wanted(center.begin(), center.end());
  for (double& element : wanted) element *= 1.0 - beta;
  std::vector<float> mean(kElements, 0.0f);
  std::vector<ElasticWorker> workers;
  for (const double share : shares) {
    ElasticWorker& worker =
        workers.emplace_back(ElasticWorker{.local = random_vector(), .global = center});
    worker.share = share;
    for (int64_t e = 0; e < kElements; ++e) {
      sum[e] += worker.local[e];
      wanted[e] += beta * share * worker.local[e];
    }
  }
  const std::vector<params::ElementRange> all = {{0, kElements}};
  for (ElasticWorker& worker : workers) {
    const std::vector<float> before = worker.local;
    ASSERT_OK_AND_ASSIGN(
        const std::unique_ptr<trainer::WeightsMerge> merge,
        trainer::MakeWeightsMerge(job, {.device = device.get(),
                                        .local = BufOf(worker.local),
                                        .global = BufOf(worker.global),
                                        .contributed = BufOf(worker.contributed)}));
    merge->Begin();
    device->Subtract(BufOf(worker.contributed), merge->origin(), BufOf(worker.local));
    merge->OnContributed(all, std::nullopt);
    EXPECT_EQ(worker.local, before) << "who contributes nothing stays";
    merge->OnContributed(all, worker.share);
    ASSERT_OK(device->Synchronize(device->Record(kernels::StreamKind::kCompute)));
    for (int64_t e = 0; e < kElements; ++e) {
      const double alpha = beta * worker.share;
      ASSERT_NEAR(worker.local[e], before[e] + alpha * (center[e] - before[e]), kRounding);
    }
    vectors::AccumulateScaled(mean.data(), worker.contributed.data(),
                              static_cast<float>(worker.share), kElements,
                              kernels::Accumulate::kAdd);
    const std::vector<float> moved = worker.local;
    merge->OnArrived(all);
    ASSERT_OK(device->Synchronize(device->Record(kernels::StreamKind::kCompute)));
    EXPECT_EQ(worker.local, moved) << "what comes back changes nothing";
  }
  optimizer->Apply(
      {},
      {.gradient = mean, .weights_in = center, .weights_out = absl::MakeSpan(center), .state = {}},
      /*decay=*/{});
  for (int64_t e = 0; e < kElements; ++e) {
    ASSERT_NEAR(center[e], wanted[e], kRounding) << "beta of the way to the mean";
    double sum_after = center[e];
    for (const ElasticWorker& worker : workers) sum_after += worker.local[e];
    ASSERT_NEAR(sum_after, sum[e], kRounding * static_cast<double>(shares.size() + 1));
  }
}

TEST(ElasticAveragingTest, AnExchangeKeepsTheSumOfAllWeights) {
  for (const double beta : {0.0, 0.3, 0.9, 1.0}) {
    ExpectElasticExchange({1.0}, beta);
    ExpectElasticExchange({0.25, 0.25, 0.25, 0.25}, beta);
    ExpectElasticExchange({0.5, 0.3, 0.2}, beta);
  }
}

}  // namespace
}  // namespace lodestar
