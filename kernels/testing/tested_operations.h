// SPDX-License-Identifier: Apache-2.0

// Runs operations with all their arguments, forward and backward, at any shape. The test suites of
// device_conformance.h use these functions on a device and on its reference.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "kernels/testing/device_test_rig.h"

namespace lodestar::kernels {

struct MatrixSize {
  int64_t rows, in, out;
};
// Runs the layer twice: with a bias and with a pre_activation that is stored, and without both.
void RunLinearForward(DeviceTestRig& rig, const MatrixSize& size, Activation activation,
                      WeightOrder order);
void RunLinearBackward(DeviceTestRig& rig, const MatrixSize& size, Activation activation,
                       WeightOrder order, Accumulate weights);
// Runs the operation twice: with the bias gradient of the first layer, and without it.
void RunLinearBackwardInput(DeviceTestRig& rig, const MatrixSize& size, Activation activation,
                            WeightOrder order, Accumulate weights);

// Runs the operation with a residual, and in place without a residual.
void RunNormForward(DeviceTestRig& rig, int64_t rows, int64_t width);
// Runs the operation. `mode` says whether all outputs are set or all are added to.
void RunNormBackward(DeviceTestRig& rig, int64_t rows, int64_t width, Accumulate mode);

// Runs attention forward and backward. Queries and keys are uniform in [-sharpness, sharpness).
// - With sharpness 1 and many tokens, all probabilities are nearly equal. The results of later
//   tokens are then means of many values, and smaller than the rounding error of the first token's
//   result.
// - With sharpness 2.5, some tens of tokens have most of the probability.
void AttendBothWays(DeviceTestRig& rig, const AttentionShape& shape, double sharpness = 1.0);

struct EmbeddingSize {
  int64_t rows, context, width, vocabulary;
};
void EmbedBothWays(DeviceTestRig& rig, const EmbeddingSize& size);

struct LossSize {
  int64_t rows, classes, row_stride;
};
// Runs the loss. In each row, a few classes, including the last one, have most of the probability.
// So an error in one of them changes the result even if there are many classes. The padding has the
// largest values, and would dominate the loss if it were read.
void RunCrossEntropy(DeviceTestRig& rig, const LossSize& size, double scale);

}  // namespace lodestar::kernels
