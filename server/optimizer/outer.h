// SPDX-License-Identifier: Apache-2.0

// Outer optimizers: what the servers do with the result of whole rounds of local steps. They ignore
// weight decay. They also ignore the call's learning rate, because it is the workers' inner rate.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/optimizer/optimizer.h"

namespace lodestar::optimizer {

// OuterAverage makes the weights the mean of what the workers send, such as their weights (local
// SGD, federated averaging).
class OuterAverage final : public Optimizer {
 public:
  std::vector<std::string> state_names() const override { return {}; }
  bool Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
             absl::Span<const params::ElementRange> decay) const override;
};

// OuterSgd makes a step along the mean d of pseudo-gradients: w -= lr * d. A pseudo-gradient is the
// weights that a worker started from minus its new weights. With a rate of 1 the weights become the
// mean of the workers' weights. Changes that the servers made, and that the workers did not know,
// stay in the weights. OuterSgd is also the servers' part of elastic averaging: see IsElastic().
class OuterSgd final : public Optimizer {
 public:
  explicit OuterSgd(double learning_rate) : learning_rate_(learning_rate) {}

  std::vector<std::string> state_names() const override { return {}; }
  bool Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
             absl::Span<const params::ElementRange> decay) const override;

 private:
  const double learning_rate_;
};

// OuterNesterov is DiLoCo (arXiv:2311.08105): Nesterov's momentum over mean pseudo-gradients d.
//   m = momentum * m + d
//   w -= lr * (d + momentum * m)
class OuterNesterov final : public Optimizer {
 public:
  struct Config {
    double learning_rate = 0.7;
    double momentum = 0.9;
  };
  explicit OuterNesterov(const Config& config) : config_(config) {}

  std::vector<std::string> state_names() const override { return {"outer_momentum"}; }
  bool Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
             absl::Span<const params::ElementRange> decay) const override;

 private:
  const Config config_;
};

// OuterDelayedNesterov is delayed Nesterov (arXiv:2401.09135, algorithm 3 with c = 0). It makes the
// step of OuterNesterov along the mean of several pseudo-gradients, but in parts: each
// pseudo-gradient changes the weights when it comes. The anchor is the weights before the first
// part.
// - Every part but the last: w = anchor - lr * sum
// - The last part: m = momentum * m + mean; w = anchor - lr * (mean + momentum * m)
//
// Every bit of the result is the same as with OuterNesterov from the anchor.
class OuterDelayedNesterov final : public Optimizer {
 public:
  explicit OuterDelayedNesterov(const OuterNesterov::Config& config) : config_(config) {}

  std::vector<std::string> state_names() const override {
    return {"outer_momentum", "outer_sum", "outer_anchor"};
  }
  bool Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
             absl::Span<const params::ElementRange> decay) const override;

 private:
  const OuterNesterov::Config config_;
};

// OuterAdam is FedAdam (arXiv:2003.00295, algorithm 2), with Adam's correction of the first steps
// as in the outer Adam of DiLoCo (arXiv:2311.08105, section 3.2). It needs an epsilon of about 0.1.
//   m = beta1 * m + (1 - beta1) * d
//   v = beta2 * v + (1 - beta2) * d^2
//   w -= lr * corrected m / (sqrt(corrected v) + epsilon)
class OuterAdam final : public Optimizer {
 public:
  struct Config {
    double learning_rate = 0.7;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 0.1;
  };
  explicit OuterAdam(const Config& config) : config_(config) {}

  std::vector<std::string> state_names() const override {
    return {"outer_exp_avg", "outer_exp_avg_sq"};
  }
  bool Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
             absl::Span<const params::ElementRange> decay) const override;

 private:
  const Config config_;
};

}  // namespace lodestar::optimizer
