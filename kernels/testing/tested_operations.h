// SPDX-License-Identifier: Apache-2.0

// Runs operations with all their arguments, forward and backward, at any shape. The suites of
// device_conformance.h run them on a device and on its reference.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "kernels/testing/device_test_rig.h"

namespace lodestar::kernels {

struct MatrixSize {
  int64_t rows, in, out;
};
// Runs the layer twice: with a bias and with the values before the activation kept, and without
// both.
void RunLinearForward(DeviceTestRig& rig, const MatrixSize& size, Activation activation,
                      WeightOrder order);
void RunLinearBackward(DeviceTestRig& rig, const MatrixSize& size, Activation activation,
                       WeightOrder order, Accumulate weights);
// Runs the operation twice: with the bias gradient of the first layer, and without it.
void RunLinearBackwardInput(DeviceTestRig& rig, const MatrixSize& size, Activation activation,
                            WeightOrder order, Accumulate weights);

// Runs the operation with a residual, and in place without a residual.
void RunNormForward(DeviceTestRig& rig, int64_t rows, int64_t width);
// Runs the operation so that all outputs are set or all are added to, as `mode` says.
void RunNormBackward(DeviceTestRig& rig, int64_t rows, int64_t width, Accumulate mode);

// Queries and keys are uniform in [-sharpness, sharpness). With sharpness 1 and many tokens, all
// probabilities are nearly equal, and later results are far below the rounding of the first. With
// sharpness 2.5, some tens of tokens have most of the probability.
void AttendBothWays(DeviceTestRig& rig, const AttentionShape& shape, double sharpness = 1.0);

struct EmbeddingSize {
  int64_t rows, context, width, vocabulary;
};
void EmbedBothWays(DeviceTestRig& rig, const EmbeddingSize& size);

struct LossSize {
  int64_t rows, classes, row_stride;
};
// A few classes of each row, including the last class, have most of the probability. So an error in
// one class shows, however many classes there are. The padding has the largest values, and would
// dominate the loss if it were read.
void RunCrossEntropy(DeviceTestRig& rig, const LossSize& size, double scale);

}  // namespace lodestar::kernels
