// Outer optimizers: what the servers do with the work of whole rounds of local steps. The learning
// rate of the call, which is the workers' inner one, and weight decay do not concern them.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/optimizer/optimizer.h"

namespace lodestar {

// The weights become the mean of the workers' weights (local SGD, federated averaging), or of what
// else they send.
class OuterAverage final : public Optimizer {
 public:
  std::vector<std::string> state_names() const override { return {}; }
  bool Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
             absl::Span<const ElementRange> decay) const override;
};

// The same for pseudo-gradients, the weights that the workers started from minus theirs: the
// weights move by their mean. What the servers have and the workers do not know yet stays.
class OuterMove final : public Optimizer {
 public:
  std::vector<std::string> state_names() const override { return {}; }
  bool Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
             absl::Span<const ElementRange> decay) const override;
};

// DiLoCo (arXiv:2311.08105): Nesterov's momentum over mean pseudo-gradients d.
// m = momentum * m + d; w -= lr * (d + momentum * m)
class OuterNesterov final : public Optimizer {
 public:
  struct Config {
    double learning_rate = 0.7;
    double momentum = 0.9;
  };
  explicit OuterNesterov(const Config& config) : config_(config) {}

  std::vector<std::string> state_names() const override { return {"outer_momentum"}; }
  bool Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
             absl::Span<const ElementRange> decay) const override;

 private:
  const Config config_;
};

}  // namespace lodestar
