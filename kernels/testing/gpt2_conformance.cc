// SPDX-License-Identifier: Apache-2.0

// Tests operations at the shapes of GPT-2: 124M has width 768 and 12 heads, 1.5B has width 1600 and
// 25 heads. Both have 1024 tokens and a vocabulary of 50257, padded to 50304. Also tests twice that
// context, and heads of 128, which successors of GPT-2 have.
#include <utility>
#include <vector>

#include "common/runtime/check.h"
#include "gtest/gtest.h"
#include "kernels/factory/device_factory.h"
#include "kernels/testing/device_conformance.h"
#include "kernels/testing/tested_operations.h"

namespace lodestar::kernels {
namespace {

constexpr int64_t kVocabulary = 50257;
constexpr int64_t kHeadRows = 50304;
constexpr double kSharpness = 2.5;
// Factor of the tolerance if the CPU is the reference, because the CPU rounds too. It adds
// thousands of rows one after the other. In sums over 4096 rows we measured errors of up to twice
// the tolerance.
constexpr double kOfCpu = 4.0;

// A layer of a model. The number of rows is samples times tokens.
struct Layer {
  MatrixSize size;
  Activation activation;
};
const std::vector<Layer> kLayers = {{{4 * 1024, 768, 3 * 768}, Activation::kNone},
                                    {{4 * 1024, 768, 3072}, Activation::kGeluTanh},
                                    {{1024, 3072, 768}, Activation::kNone},
                                    {{1024, 1600, 6400}, Activation::kGeluTanh},
                                    {{512, 6400, 1600}, Activation::kNone}};
const std::vector<std::pair<int64_t, int64_t>> kNorms = {{4 * 1024, 768}, {1024, 1600}};

}  // namespace

void Gpt2ConformanceTest::ExpectNearCpu(const Operation& operation, const Tolerance& tolerance) {
  auto cpu = factory::MakeDevice("cpu", /*threads=*/0, /*why_not_cuda=*/nullptr);
  LODESTAR_CHECK(cpu.ok()) << cpu.status().ToString();
  reference_ = *std::move(cpu);
  ExpectConforms(operation, {kOfCpu * tolerance.units, tolerance.terms});
}

TEST_P(Gpt2ConformanceTest, AttendsToThePast) {
  for (const AttentionShape& s :
       {AttentionShape{4, 1024, 12, 64}, AttentionShape{1, 1024, 25, 64},
        AttentionShape{1, 2048, 4, 64}, AttentionShape{2, 1024, 6, 128},
        AttentionShape{1, 2048, 4, 128}, AttentionShape{1, 1023, 2, 128}}) {
    ExpectNearCpu([&](DeviceTestRig& rig) { AttendBothWays(rig, s, kSharpness); }, kComposite);
  }
}

TEST_P(Gpt2ConformanceTest, DropsTheSameProbabilitiesInBothDirections) {
  for (const AttentionShape& s : {AttentionShape{2, 1024, 12, 64, {0.1, 5, 1, 0}},
                                  AttentionShape{1, 2048, 2, 128, {0.1, 5, 1, 4}}}) {
    ExpectNearCpu([&](DeviceTestRig& rig) { AttendBothWays(rig, s, kSharpness); }, kComposite);
  }
}

TEST_P(Gpt2ConformanceTest, EmbedsAndScatters) {
  for (const EmbeddingSize& s : {EmbeddingSize{4 * 1024, 1024, 768, kVocabulary},
                                 EmbeddingSize{2 * 2048, 2048, 1600, 5000}}) {
    ExpectConforms([&](DeviceTestRig& rig) { EmbedBothWays(rig, s); }, kSumOfProducts);
  }
}

TEST_P(Gpt2ConformanceTest, CrossEntropyWithAndWithoutGradient) {
  for (const LossSize& s :
       {LossSize{512, kVocabulary, kHeadRows}, LossSize{64, kVocabulary, kVocabulary},
        LossSize{64, kHeadRows, kHeadRows}}) {
    for (const double scale : {0.0, 0.25}) {
      ExpectConforms([&](DeviceTestRig& rig) { RunCrossEntropy(rig, s, scale); }, kTranscendental);
    }
  }
}

TEST_P(Gpt2ConformanceTest, LinearForwardFusesBiasAndActivation) {
  for (const auto& [size, activation] : kLayers) {
    ExpectNearCpu(
        [&, size = size, activation = activation](DeviceTestRig& rig) {
          RunLinearForward(rig, size, activation, WeightOrder::kInOut);
        },
        kSumOfProducts);
  }
}

TEST_P(Gpt2ConformanceTest, LinearBackwardSetsAndAdds) {
  // With kSet, the sums for the bias are fused into the matrix product. With kAdd, they are not.
  for (const Accumulate weights : {Accumulate::kSet, Accumulate::kAdd}) {
    for (const auto& [size, activation] : kLayers) {
      if (weights == Accumulate::kAdd && size.rows > 1024) continue;
      ExpectNearCpu(
          [&, size = size, activation = activation](DeviceTestRig& rig) {
            RunLinearBackward(rig, size, activation, WeightOrder::kInOut, weights);
          },
          kSumOfProducts);
    }
  }
}

TEST_P(Gpt2ConformanceTest, LinearBackwardInputGoesThroughTheGelu) {
  for (const MatrixSize& size : {MatrixSize{2 * 1024, 3072, 768}, MatrixSize{512, 6400, 1600}}) {
    ExpectNearCpu(
        [&](DeviceTestRig& rig) {
          RunLinearBackwardInput(rig, size, Activation::kGeluTanh, WeightOrder::kInOut,
                                 Accumulate::kSet);
        },
        kSumOfProducts);
  }
}

// Calls the operation as the model does: without bias, and with the padded token table as weights.
TEST_P(Gpt2ConformanceTest, HeadOverTheWholeVocabulary) {
  ExpectNearCpu(
      [](DeviceTestRig& rig) {
        const int64_t rows = 256, width = 768;
        const Buf x = rig.Random(rows * width);
        const Buf table = rig.Random(kHeadRows * width);
        rig.device().LinearForward(rig.Output("logits", rows * kHeadRows), {}, x, table, {}, rows,
                                   width, kHeadRows, Activation::kNone, WeightOrder::kOutIn);
        rig.device().LinearBackward(rig.Output("dx", rows * width),
                                    rig.Output("dtable", kHeadRows * width, rig.statistics_dtype()),
                                    {}, rig.InOut("dlogits", rows * kHeadRows), {}, x, table, rows,
                                    width, kHeadRows, Activation::kNone, WeightOrder::kOutIn,
                                    Accumulate::kSet);
      },
      kSumOfProducts);
}

TEST_P(Gpt2ConformanceTest, NormalisesWithAndWithoutResidual) {
  for (const auto& [rows, width] : kNorms) {
    ExpectConforms(
        [&, rows = rows, width = width](DeviceTestRig& rig) { RunNormForward(rig, rows, width); },
        kComposite);
  }
}

TEST_P(Gpt2ConformanceTest, NormBackwardSetsAndAdds) {
  for (const auto& [rows, width] : kNorms) {
    for (const Accumulate mode : {Accumulate::kSet, Accumulate::kAdd}) {
      ExpectConforms([&, rows = rows, width = width](
                         DeviceTestRig& rig) { RunNormBackward(rig, rows, width, mode); },
                     kComposite);
    }
  }
}

}  // namespace lodestar::kernels
