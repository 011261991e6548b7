// SPDX-License-Identifier: Apache-2.0

#include "server/optimizer/adamw.h"

#include "kernels/device.h"
#include "kernels/vectors/optimizer_step.h"
#include "server/optimizer/decay_split.h"

namespace lodestar::optimizer {

bool AdamW::Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
                  absl::Span<const params::ElementRange> decay) const {
  return ForEachDecayPiece(vectors, decay, [&](const OptimizerVectors& piece, bool decays) {
    const kernels::AdamWStep step = {
        .learning_rate = call.learning_rate,
        .beta1 = config_.beta1,
        .beta2 = config_.beta2,
        .epsilon = config_.epsilon,
        .weight_decay = decays ? config_.weight_decay : 0.0,
        .gradient_scale = call.gradient_scale,
        .step = call.step,
    };
    return vectors::AdamWStepCpu(piece.weights_out, piece.weights_in, piece.state[0],
                                 piece.state[1], piece.gradient, step);
  });
}

}  // namespace lodestar::optimizer
