// SPDX-License-Identifier: Apache-2.0

// AdamW: Loshchilov & Hutter 2019 (arXiv:1711.05101), algorithm 2, as torch.optim.AdamW.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/optimizer/optimizer.h"

namespace lodestar::optimizer {

class AdamW final : public Optimizer {
 public:
  struct Config {
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.0;
  };
  explicit AdamW(const Config& config) : config_(config) {}

  // The names are those of PyTorch's state_dict.
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  bool Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
             absl::Span<const params::ElementRange> decay) const override;

 private:
  const Config config_;
};

}  // namespace lodestar::optimizer
