// SPDX-License-Identifier: Apache-2.0

#include "server/optimizer/sgd.h"

#include "kernels/device.h"
#include "kernels/vectors/optimizer_step.h"
#include "server/optimizer/decay_split.h"

namespace lodestar::optimizer {
namespace {

bool ApplySteps(const OptimizerCall& call, const OptimizerVectors& vectors,
                absl::Span<const params::ElementRange> decay,
                const kernels::MomentumStep& settings) {
  return ForEachDecayPiece(vectors, decay, [&](const OptimizerVectors& piece, bool decays) {
    kernels::MomentumStep step = settings;
    step.learning_rate = call.learning_rate;
    step.gradient_scale = call.gradient_scale;
    if (!decays) step.weight_decay = 0.0;
    return vectors::SgdMomentumStep(piece.weights_out, piece.weights_in, piece.state[0],
                                    piece.gradient, step);
  });
}

}  // namespace

bool Sgd::Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
                absl::Span<const params::ElementRange> decay) const {
  return ApplySteps(call, vectors, decay,
                    {.learning_rate = 0.0, .momentum = 0.0, .weight_decay = config_.weight_decay});
}

bool Momentum::Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
                     absl::Span<const params::ElementRange> decay) const {
  return ApplySteps(
      call, vectors, decay,
      {.learning_rate = 0.0, .momentum = config_.momentum, .weight_decay = config_.weight_decay});
}

bool Nesterov::Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
                     absl::Span<const params::ElementRange> decay) const {
  return ApplySteps(call, vectors, decay,
                    {.learning_rate = 0.0,
                     .momentum = config_.momentum,
                     .weight_decay = config_.weight_decay,
                     .nesterov = true});
}

}  // namespace lodestar::optimizer
