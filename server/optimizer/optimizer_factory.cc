// SPDX-License-Identifier: Apache-2.0

#include "server/optimizer/optimizer_factory.h"

#include "common/messages/contribution.h"
#include "common/runtime/check.h"
#include "server/optimizer/adamw.h"
#include "server/optimizer/averaging.h"
#include "server/optimizer/outer.h"
#include "server/optimizer/sgd.h"

namespace lodestar::optimizer {
namespace {

// Returns an optimizer that makes steps along mean pseudo-gradients, without momentum.
std::unique_ptr<Optimizer> MakeOuterSgd(const job::JobSpec& job, double learning_rate) {
  // In this mode a contribution may be one part of a step. The divisor of the mean is known only
  // with the last part, and OuterDelayedNesterov applies it then.
  if (job.mode == job::Mode::kAsyncLocalSgd) {
    return std::make_unique<OuterDelayedNesterov>(
        OuterNesterov::Config{.learning_rate = learning_rate, .momentum = 0.0});
  }
  return std::make_unique<OuterSgd>(learning_rate);
}

// Returns the optimizer that makes the weights the mean of what the workers of this job send:
// - If the workers send changes, it adds their mean.
// - If contributions are applied one by one, workers send weights, and each contribution counts as
//   the change from the servers' weights. It adds that change.
// - Otherwise it replaces the weights by the mean of the workers' weights.
std::unique_ptr<Optimizer> MakeMean(const job::JobSpec& job) {
  if (messages::RoundContributionKind(job) == messages::ContributionKind::kPseudoGradient ||
      job::IsAnchoredAtServer(job)) {
    return MakeOuterSgd(job, /*learning_rate=*/1.0);
  }
  return std::make_unique<OuterAverage>();
}

std::unique_ptr<Optimizer> MakeOuterOptimizer(const job::JobSpec& job) {
  switch (job.outer_optimizer) {
    case job::OuterOptimizerKind::kAverage:
      return MakeMean(job);
    case job::OuterOptimizerKind::kNesterov: {
      const OuterNesterov::Config config = {.learning_rate = job.outer_learning_rate,
                                            .momentum = job.outer_momentum};
      if (job.mode == job::Mode::kAsyncLocalSgd)
        return std::make_unique<OuterDelayedNesterov>(config);
      return std::make_unique<OuterNesterov>(config);
    }
    case job::OuterOptimizerKind::kSgd:
      return MakeOuterSgd(job, job.outer_learning_rate);
    case job::OuterOptimizerKind::kEasgd:
      return std::make_unique<OuterSgd>(job.outer_learning_rate);
    case job::OuterOptimizerKind::kAdam:
      return std::make_unique<OuterAdam>(OuterAdam::Config{.learning_rate = job.outer_learning_rate,
                                                           .beta1 = job.outer_momentum,
                                                           .beta2 = job.outer_beta2,
                                                           .epsilon = job.outer_epsilon});
  }
  LODESTAR_CHECK(false) << "outer optimizer " << static_cast<int>(job.outer_optimizer);
  return nullptr;
}

}  // namespace

std::unique_ptr<Optimizer> MakeGradientOptimizer(const job::OptimizerSettings& settings) {
  const Momentum::Config momentum = {.momentum = settings.momentum,
                                     .weight_decay = settings.weight_decay};
  switch (settings.kind) {
    case job::OptimizerKind::kSgd:
      return std::make_unique<Sgd>(Sgd::Config{.weight_decay = settings.weight_decay});
    case job::OptimizerKind::kMomentum:
      return std::make_unique<Momentum>(momentum);
    case job::OptimizerKind::kNesterov:
      return std::make_unique<Nesterov>(momentum);
    case job::OptimizerKind::kAdamW:
      return std::make_unique<AdamW>(AdamW::Config{.beta1 = settings.beta1,
                                                   .beta2 = settings.beta2,
                                                   .epsilon = settings.epsilon,
                                                   .weight_decay = settings.weight_decay});
    case job::OptimizerKind::kReduce:
      return std::make_unique<OuterAverage>();
  }
  LODESTAR_CHECK(false) << "optimizer " << static_cast<int>(settings.kind);
  return nullptr;
}

std::unique_ptr<Optimizer> MakeAveraging(const job::JobSpec& job) {
  return std::make_unique<Averaging>(MakeMean(job), MakeServerOptimizer(job)->state_names());
}

std::unique_ptr<Optimizer> MakeServerOptimizer(const job::JobSpec& job) {
  if (messages::RoundContributionKind(job) == messages::ContributionKind::kGradient) {
    return MakeGradientOptimizer(job.optimizer);
  }
  return MakeOuterOptimizer(job);
}

}  // namespace lodestar::optimizer
