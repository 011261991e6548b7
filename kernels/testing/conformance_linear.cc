// SPDX-License-Identifier: Apache-2.0

// Tests matrix products, fully connected layers and normalisation.
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/device_conformance.h"
#include "kernels/testing/tested_operations.h"

namespace lodestar::kernels {
namespace {

const std::vector<MatrixSize> kMatrixSizes = {{1, 1, 1},    {31, 33, 1},   {1, 31, 33},
                                              {33, 64, 31}, {64, 128, 96}, {257, 65, 130}};

const std::vector<std::pair<Activation, WeightOrder>> kLayers = {
    {Activation::kNone, WeightOrder::kOutIn},     {Activation::kNone, WeightOrder::kInOut},
    {Activation::kRelu, WeightOrder::kOutIn},     {Activation::kRelu, WeightOrder::kInOut},
    {Activation::kGeluTanh, WeightOrder::kOutIn}, {Activation::kGeluTanh, WeightOrder::kInOut}};

}  // namespace

TEST_P(DeviceConformanceTest, MultipliesEveryTransposition) {
  for (const MatrixSize& size : kMatrixSizes) {
    for (int flags = 0; flags < 16; ++flags) {
      ExpectConforms(
          [&](DeviceTestRig& rig) {
            const MatMulShape shape{.transpose_a = (flags & 1) != 0,
                                    .transpose_b = (flags & 2) != 0,
                                    .m = size.rows,
                                    .n = size.out,
                                    .k = size.in,
                                    .alpha = 0.5};
            const bool add = (flags & 4) != 0;
            const DType dtype =
                (flags & 8) != 0 ? rig.statistics_dtype() : rig.device().capabilities().compute;
            const int64_t n = size.rows * size.out;
            rig.device().MatMul(shape, add ? rig.InOut("c", n, dtype) : rig.Output("c", n, dtype),
                                rig.Random(size.rows * size.in), rig.Random(size.in * size.out),
                                add ? Accumulate::kAdd : Accumulate::kSet);
          },
          kSumOfProducts);
    }
  }
}

TEST_P(DeviceConformanceTest, MultipliesBatchesWithStrides) {
  ExpectConforms(
      [](DeviceTestRig& rig) {
        // Each input is one of three heads that lie side by side in rows of 3 * 33 elements. Rows
        // of the result are padded to 20 elements.
        const MatMulShape shape{.transpose_b = true,
                                .m = 17,
                                .n = 18,
                                .k = 33,
                                .batch = 3,
                                .stride_a = 33,
                                .stride_b = 33,
                                .stride_c = 17 * 20,
                                .lda = 99,
                                .ldb = 99,
                                .ldc = 20};
        rig.device().MatMul(shape, rig.Output("c", 3 * 17 * 20), rig.Random(17 * 99),
                            rig.Random(18 * 99), Accumulate::kSet);
      },
      kSumOfProducts);
}

TEST_P(DeviceConformanceTest, ActivatesInPlaceToo) {
  for (int64_t n : {1, 31, 33, 1000, 70001}) {
    for (Activation activation : {Activation::kNone, Activation::kRelu, Activation::kGeluTanh}) {
      ExpectConforms(
          [&](DeviceTestRig& rig) {
            rig.device().Activate(rig.Output("y", n), rig.Random(n), activation);
            const Buf in_place = rig.InOut("in_place", n);
            rig.device().Activate(in_place, in_place, activation);
          },
          kTranscendental);
    }
  }
}

TEST_P(DeviceConformanceTest, LinearForwardFusesBiasAndActivation) {
  for (const MatrixSize& s : kMatrixSizes) {
    for (const auto& [activation, order] : kLayers) {
      ExpectConforms([&, activation = activation, order = order](
                         DeviceTestRig& rig) { RunLinearForward(rig, s, activation, order); },
                     kSumOfProducts);
    }
  }
}

TEST_P(DeviceConformanceTest, LinearBackwardSetsAndAdds) {
  for (const MatrixSize& s : kMatrixSizes) {
    for (const auto& [activation, order] : kLayers) {
      for (Accumulate weights : {Accumulate::kSet, Accumulate::kAdd}) {
        ExpectConforms(
            [&, activation = activation, order = order](DeviceTestRig& rig) {
              RunLinearBackward(rig, s, activation, order, weights);
            },
            kSumOfProducts);
      }
    }
  }
}

TEST_P(DeviceConformanceTest, LinearBackwardInputGoesThroughTheActivation) {
  for (const MatrixSize& s : kMatrixSizes) {
    for (const auto& [activation, order] : kLayers) {
      if (activation == Activation::kNone) continue;
      for (Accumulate weights : {Accumulate::kSet, Accumulate::kAdd}) {
        ExpectConforms(
            [&, activation = activation, order = order](DeviceTestRig& rig) {
              RunLinearBackwardInput(rig, s, activation, order, weights);
            },
            kSumOfProducts);
      }
    }
  }
}

TEST_P(DeviceConformanceTest, LinearBackwardSkipsWhatIsNotWanted) {
  ExpectConforms(
      [](DeviceTestRig& rig) {
        rig.device().LinearBackward({}, rig.Output("dw", 31 * 7, rig.statistics_dtype()), {},
                                    rig.InOut("dy", 9 * 31), {}, rig.Random(9 * 7),
                                    rig.Random(31 * 7), 9, 7, 31, Activation::kNone,
                                    WeightOrder::kInOut, Accumulate::kSet);
      },
      kSumOfProducts);
}

TEST_P(DeviceConformanceTest, NormalisesWithAndWithoutResidual) {
  for (const auto& [rows, width] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {3, 31}, {31, 33}, {64, 128}, {5, 1000}, {300, 130}}) {
    ExpectConforms(
        [&, rows = rows, width = width](DeviceTestRig& rig) { RunNormForward(rig, rows, width); },
        kComposite);
  }
}

TEST_P(DeviceConformanceTest, NormBackwardSetsAndAdds) {
  for (const auto& [rows, width] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 7}, {3, 31}, {31, 33}, {64, 128}, {5, 1000}, {300, 130}}) {
    for (Accumulate mode : {Accumulate::kSet, Accumulate::kAdd}) {
      ExpectConforms([&, rows = rows, width = width](
                         DeviceTestRig& rig) { RunNormBackward(rig, rows, width, mode); },
                     kComposite);
    }
  }
}

}  // namespace lodestar::kernels
