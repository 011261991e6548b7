// Operations with all their arguments, forward and backward, at any shape: what the suites of
// device_conformance.h run on a device and on its reference.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "kernels/testing/device_test_rig.h"

namespace lodestar::kernels {

struct MatrixSize {
  int64_t rows, in, out;
};
// With bias, the values before the activation kept; and with neither.
void RunLinearForward(DeviceTestRig& rig, const MatrixSize& size, Activation activation,
                      WeightOrder order);
void RunLinearBackward(DeviceTestRig& rig, const MatrixSize& size, Activation activation,
                       WeightOrder order, Accumulate weights);
// With the bias of the layer before, and without.
void RunLinearBackwardInput(DeviceTestRig& rig, const MatrixSize& size, Activation activation,
                            WeightOrder order, Accumulate weights);

// With a residual, and in place without one.
void RunNormForward(DeviceTestRig& rig, int64_t rows, int64_t width);
// Sets or adds to all that it writes.
void RunNormBackward(DeviceTestRig& rig, int64_t rows, int64_t width, Accumulate mode);

// Queries and keys are uniform in [-sharpness, sharpness). Of 1, over many tokens, all weights are
// alike and later results far below the rounding of the first; of 2.5 some tens of tokens have most
// of it.
void AttendBothWays(DeviceTestRig& rig, const AttentionShape& shape, double sharpness = 1.0);

struct EmbeddingSize {
  int64_t rows, context, width, vocabulary;
};
void EmbedBothWays(DeviceTestRig& rig, const EmbeddingSize& size);

struct LossSize {
  int64_t rows, classes, row_stride;
};
// A few classes of each row, the last among them, have most of the probability, so that a wrong one
// shows among however many. Padding would dominate the loss, and be the largest.
void RunCrossEntropy(DeviceTestRig& rig, const LossSize& size, double scale);

}  // namespace lodestar::kernels
