// SPDX-License-Identifier: Apache-2.0

// Tests attention, embedding, loss, convolution and pooling.
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/device_conformance.h"
#include "kernels/testing/tested_operations.h"

namespace lodestar::kernels {

TEST_P(DeviceConformanceTest, AttendsToThePast) {
  for (const AttentionShape& s : {AttentionShape{1, 1, 1, 1}, AttentionShape{2, 31, 3, 7},
                                  AttentionShape{1, 33, 2, 16}, AttentionShape{3, 64, 2, 32},
                                  AttentionShape{1, 130, 2, 33}, AttentionShape{1, 256, 1, 64}}) {
    ExpectConforms([&](DeviceTestRig& rig) { AttendBothWays(rig, s); }, kComposite);
  }
}

// The random generator of dropout makes four numbers at a time. Some numbers of tokens are
// multiples of four and others are not. So the random numbers of a row begin at different places in
// such a group.
TEST_P(DeviceConformanceTest, DropsTheSameProbabilitiesInBothDirections) {
  const auto shape = [](int64_t batch, int64_t tokens, int64_t heads, int64_t width,
                        const DropoutMask& mask) {
    return AttentionShape{batch, tokens, heads, width, mask};
  };
  for (const AttentionShape& s :
       {shape(1, 1, 1, 1, {0.5, 1, 2, 3}), shape(2, 31, 3, 7, {0.1, 5, 1, 0}),
        shape(2, 36, 2, 64, {0.3, 7, 0, 8}), shape(1, 70, 1, 64, {0.9, 1, 9, 1})}) {
    ExpectConforms([&](DeviceTestRig& rig) { AttendBothWays(rig, s); }, kComposite);
  }
}

TEST_P(DeviceConformanceTest, AttentionNeedsNoSquareOfTheContext) {
  const auto elements = [&](int64_t tokens) {
    return device_->AttentionWorkspaceElements({2, tokens, 4, 64});
  };
  EXPECT_LE(elements(1 << 16), 9 * elements(1 << 13));
}

TEST_P(DeviceConformanceTest, EmbedsAndScatters) {
  for (const auto& [rows, context, width, vocabulary] :
       std::vector<std::array<int64_t, 4>>{{1, 1, 1, 1}, {31, 31, 33, 5}, {128, 64, 128, 50}}) {
    ExpectConforms(
        [&, rows = rows, context = context, width = width,
         vocabulary = vocabulary](DeviceTestRig& rig) {
          EmbedBothWays(rig, {rows, context, width, vocabulary});
        },
        kSumOfProducts);
  }
}

TEST_P(DeviceConformanceTest, CrossEntropyWithAndWithoutGradient) {
  for (const auto& [rows, classes] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {31, 33}, {64, 10}, {33, 256}, {3, 5001}}) {
    for (double scale : {0.0, 0.25}) {
      ExpectConforms(
          [&, rows = rows, classes = classes](DeviceTestRig& rig) {
            const Buf targets = rig.Integers(rows, static_cast<int32_t>(classes));
            rig.device().SoftmaxCrossEntropy(rig.Output("losses", rows, rig.statistics_dtype()),
                                             rig.Output("correct", rows, DType::kI32),
                                             rig.InOut("logits", rows * classes), targets, rows,
                                             classes, /*row_stride=*/classes, scale);
          },
          kTranscendental);
    }
  }
}

TEST_P(DeviceConformanceTest, CrossEntropyDoesNotReadPaddingAndClearsItInTheGradient) {
  for (const auto& [rows, classes, row_stride] :
       std::vector<std::array<int64_t, 3>>{{3, 5, 6}, {31, 33, 128}, {2, 1000, 1024}}) {
    for (double scale : {0.0, 0.25}) {
      ExpectConforms(
          [&, rows = rows, classes = classes, row_stride = row_stride](DeviceTestRig& rig) {
            RunCrossEntropy(rig, {rows, classes, row_stride}, scale);
          },
          kTranscendental);
    }
  }
}

TEST_P(DeviceConformanceTest, CrossEntropyTakesTheFirstOfEqualsAndLargeLogits) {
  ExpectConforms(
      [](DeviceTestRig& rig) {
        const Buf targets = rig.Output("targets", 3, DType::kI32);
        rig.device().Fill(targets, 1.0);
        const Buf logits = rig.Values({5, 5, 5, 0, 80, -80, -3, 2, 2});
        rig.device().SoftmaxCrossEntropy(rig.Output("losses", 3, rig.statistics_dtype()),
                                         rig.Output("correct", 3, DType::kI32), logits, targets, 3,
                                         /*classes=*/3, /*row_stride=*/3, 0.0);
      },
      kTranscendental);
}

TEST_P(DeviceConformanceTest, ConvolvesAndPools) {
  for (const ConvShape& s :
       {ConvShape{1, 1, 1, 1, 1}, ConvShape{3, 2, 5, 7, 3}, ConvShape{2, 3, 8, 8, 16},
        ConvShape{3, 8, 10, 10, 17}, ConvShape{1, 1, 1, 9, 2}, ConvShape{1, 2, 31, 1, 2}}) {
    for (Accumulate weights : {Accumulate::kSet, Accumulate::kAdd}) {
      ExpectConforms(
          [&](DeviceTestRig& rig) {
            const int64_t input = s.samples * s.in_channels * s.height * s.width;
            const int64_t output = s.samples * s.out_channels * s.height * s.width;
            const int64_t taps = s.out_channels * s.in_channels * 9;
            const Buf x = rig.Random(input);
            const Buf w = rig.Random(taps);
            const Buf y = rig.Output("y", output);
            const Buf workspace = rig.Workspace(rig.device().ConvWorkspaceElements(s));
            rig.device().ConvReluForward(y, x, w, rig.Random(s.out_channels), workspace, s);
            const auto weight_output = [&](const char* name, int64_t n) {
              return weights == Accumulate::kAdd ? rig.InOut(name, n, rig.statistics_dtype())
                                                 : rig.Output(name, n, rig.statistics_dtype());
            };
            const Buf dw = weight_output("dw", taps);
            const Buf db = weight_output("db", s.out_channels);
            // The backward pass gets random values as y, not the output of ConvReluForward(). In
            // that output, a value near 0 may be 0 on one device and not on another, because of
            // rounding.
            const Buf active = rig.Random(output);
            rig.device().ConvReluBackward(rig.Output("dx", input), dw, db, rig.InOut("dy", output),
                                          active, x, w, workspace, s, weights);
          },
          kSumOfProducts);
    }
  }
}

TEST_P(DeviceConformanceTest, MaxPoolKeepsTheFirstOfEquals) {
  for (const auto& [planes, height, width] :
       std::vector<std::array<int64_t, 3>>{{1, 2, 2}, {3, 5, 7}, {33, 14, 14}, {2, 31, 3}}) {
    ExpectConforms(
        [&, planes = planes, height = height, width = width](DeviceTestRig& rig) {
          const int64_t outputs = planes * (height / 2) * (width / 2);
          // There are only five different values, so many windows have several equal maxima.
          std::vector<double> values(planes * height * width);
          for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * i % 5);
          const Buf argmax = rig.Output("argmax", outputs, DType::kU8);
          rig.device().MaxPoolForward(rig.Output("y", outputs), argmax, rig.Values(values), planes,
                                      height, width);
          rig.device().MaxPoolBackward(rig.Output("dx", planes * height * width),
                                       rig.Random(outputs), argmax, planes, height, width);
        },
        kExact);
  }
}

}  // namespace lodestar::kernels
