// SPDX-License-Identifier: Apache-2.0

// Stochastic gradient descent: plain, with momentum (Polyak) or with Nesterov's momentum, as
// torch.optim.SGD without dampening. Weight decay is decoupled.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/optimizer/optimizer.h"

namespace lodestar::optimizer {

// The update is w -= lr * decay * w; w -= lr * g.
class Sgd final : public Optimizer {
 public:
  struct Config {
    double weight_decay = 0.0;
  };
  explicit Sgd(const Config& config) : config_(config) {}

  std::vector<std::string> state_names() const override { return {}; }
  bool Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
             absl::Span<const params::ElementRange> decay) const override;

 private:
  const Config config_;
};

// The update is m = momentum * m + g; w -= lr * decay * w; w -= lr * m.
class Momentum final : public Optimizer {
 public:
  struct Config {
    double momentum = 0.9;
    double weight_decay = 0.0;
  };
  explicit Momentum(const Config& config) : config_(config) {}

  std::vector<std::string> state_names() const override { return {"momentum"}; }
  bool Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
             absl::Span<const params::ElementRange> decay) const override;

 private:
  const Config config_;
};

// The update is m = momentum * m + g; w -= lr * decay * w; w -= lr * (g + momentum * m).
class Nesterov final : public Optimizer {
 public:
  using Config = Momentum::Config;
  explicit Nesterov(const Config& config) : config_(config) {}

  std::vector<std::string> state_names() const override { return {"momentum"}; }
  bool Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
             absl::Span<const params::ElementRange> decay) const override;

 private:
  const Config config_;
};

}  // namespace lodestar::optimizer
