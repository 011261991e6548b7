// SPDX-License-Identifier: Apache-2.0

#include "kernels/testing/tested_operations.h"

#include <random>
#include <string>
#include <vector>

namespace lodestar::kernels {
namespace {

Buf Written(DeviceTestRig& rig, const std::string& name, int64_t n, DType dtype, Accumulate mode) {
  return mode == Accumulate::kAdd ? rig.InOut(name, n, dtype) : rig.Output(name, n, dtype);
}

}  // namespace

void RunLinearForward(DeviceTestRig& rig, const MatrixSize& s, Activation activation,
                      WeightOrder order) {
  const Buf x = rig.Random(s.rows * s.in);
  const Buf w = rig.Random(s.out * s.in);
  const Buf bias = rig.Random(s.out);
  const Buf pre = activation == Activation::kNone ? Buf{} : rig.Output("pre", s.rows * s.out);
  rig.device().LinearForward(rig.Output("y", s.rows * s.out), pre, x, w, bias, s.rows, s.in, s.out,
                             activation, order);
  rig.device().LinearForward(rig.Output("plain", s.rows * s.out), {}, x, w, {}, s.rows, s.in, s.out,
                             activation, order);
}

void RunLinearBackward(DeviceTestRig& rig, const MatrixSize& s, Activation activation,
                       WeightOrder order, Accumulate weights) {
  const Buf dw = Written(rig, "dw", s.out * s.in, rig.statistics_dtype(), weights);
  const Buf db = Written(rig, "db", s.out, rig.statistics_dtype(), weights);
  rig.device().LinearBackward(rig.Output("dx", s.rows * s.in), dw, db,
                              rig.InOut("dy", s.rows * s.out), rig.Random(s.rows * s.out),
                              rig.Random(s.rows * s.in), rig.Random(s.out * s.in), s.rows, s.in,
                              s.out, activation, order, weights);
}

void RunLinearBackwardInput(DeviceTestRig& rig, const MatrixSize& s, Activation activation,
                            WeightOrder order, Accumulate weights) {
  const Buf db = Written(rig, "db", s.in, rig.statistics_dtype(), weights);
  const Buf dy = rig.Random(s.rows * s.out);
  const Buf pre = rig.Random(s.rows * s.in);
  const Buf w = rig.Random(s.out * s.in);
  rig.device().LinearBackwardInput(rig.Output("dx", s.rows * s.in), db, dy, pre, w, s.rows, s.in,
                                   s.out, activation, order, weights);
  rig.device().LinearBackwardInput(rig.Output("dx alone", s.rows * s.in), {}, dy, pre, w, s.rows,
                                   s.in, s.out, activation, order, weights);
}

void RunNormForward(DeviceTestRig& rig, int64_t rows, int64_t width) {
  const Buf a = rig.Random(rows * width);
  const Buf b = rig.Random(rows * width);
  const Buf gamma = rig.Random(width);
  const Buf beta = rig.Random(width);
  const DType statistics = rig.statistics_dtype();
  rig.device().ResidualNormForward(rig.Output("y", rows * width), rig.Output("sum", rows * width),
                                   rig.Output("mean", rows, statistics),
                                   rig.Output("rstd", rows, statistics), a, b, gamma, beta, rows,
                                   width);
  const Buf in_place = rig.InOut("in_place", rows * width);
  rig.device().ResidualNormForward(
      rig.Output("y2", rows * width), in_place, rig.Output("mean2", rows, statistics),
      rig.Output("rstd2", rows, statistics), in_place, {}, gamma, beta, rows, width);
}

void RunNormBackward(DeviceTestRig& rig, int64_t rows, int64_t width, Accumulate mode) {
  const Buf x = rig.Random(rows * width);
  const Buf gamma = rig.Random(width);
  const Buf sum = rig.Output("sum", rows * width);
  const Buf mean = rig.Output("mean", rows, rig.statistics_dtype());
  const Buf rstd = rig.Output("rstd", rows, rig.statistics_dtype());
  rig.device().ResidualNormForward(rig.Output("y", rows * width), sum, mean, rstd, x, {}, gamma,
                                   rig.Random(width), rows, width);
  const Buf dx = Written(rig, "dx", rows * width, rig.device().capabilities().compute, mode);
  const Buf dgamma = Written(rig, "dgamma", width, rig.statistics_dtype(), mode);
  const Buf dbeta = Written(rig, "dbeta", width, rig.statistics_dtype(), mode);
  rig.device().NormBackward(dx, dgamma, dbeta, rig.Random(rows * width), sum, mean, rstd, gamma,
                            rows, width, mode, mode);
}

void AttendBothWays(DeviceTestRig& rig, const AttentionShape& s, double sharpness) {
  const int64_t of_token = s.heads * s.head_width;
  const int64_t outputs = s.batch * s.tokens * of_token;
  std::mt19937 generator(1);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  std::vector<double> values(3 * outputs);
  for (size_t i = 0; i < values.size(); ++i) {
    const bool is_value = i / of_token % 3 == 2;
    values[i] = (is_value ? 1.0 : sharpness) * uniform(generator);
  }
  const Buf qkv = rig.Values(values);
  const Buf dy = rig.Random(outputs);
  const Buf y = rig.Output("y", outputs);
  const Buf log_sum_exp =
      rig.Output("log_sum_exp", s.batch * s.heads * s.tokens, rig.statistics_dtype());
  const Buf workspace = rig.Workspace(rig.device().AttentionWorkspaceElements(s));
  rig.device().AttentionForward(y, log_sum_exp, qkv, workspace, s);
  rig.device().AttentionBackward(rig.Output("dqkv", 3 * outputs), dy, y, log_sum_exp, qkv,
                                 workspace, s);
}

void EmbedBothWays(DeviceTestRig& rig, const EmbeddingSize& s) {
  const Buf tokens = rig.Integers(s.rows, static_cast<int32_t>(s.vocabulary));
  rig.device().EmbedForward(rig.Output("y", s.rows * s.width), tokens,
                            rig.Random(s.vocabulary * s.width), rig.Random(s.context * s.width),
                            s.rows, s.context, s.width);
  const DType gradients = rig.statistics_dtype();
  const Buf dtokens = rig.InOut("dtoken_table", s.vocabulary * s.width, gradients);
  const Buf dpositions = rig.InOut("dposition_table", s.context * s.width, gradients);
  rig.device().EmbedBackward(dtokens, dpositions, rig.Random(s.rows * s.width), tokens, s.rows,
                             s.context, s.width, s.vocabulary);
}

void RunCrossEntropy(DeviceTestRig& rig, const LossSize& s, double scale) {
  std::vector<double> values(s.rows * s.row_stride);
  for (int64_t i = 0; i < s.rows * s.row_stride; ++i) {
    values[i] = i % s.row_stride < s.classes ? static_cast<double>(i * i % 17) / 8.0 : 1e4;
  }
  constexpr int64_t kLikely = 7;
  for (int64_t row = 0; row < s.rows; ++row) {
    for (int64_t i = 1; i <= kLikely; ++i) {
      const int64_t likely = s.classes * i / kLikely + s.classes - 1 + row * (kLikely - i);
      values[row * s.row_stride + likely % s.classes] = 12.0;
    }
  }
  const Buf logits = scale == 0.0 ? rig.Values(values) : rig.Output("logits", values);
  rig.device().SoftmaxCrossEntropy(rig.Output("losses", s.rows, rig.statistics_dtype()),
                                   rig.Output("correct", s.rows, DType::kI32), logits,
                                   rig.Integers(s.rows, static_cast<int32_t>(s.classes)), s.rows,
                                   s.classes, s.row_stride, scale);
}

}  // namespace lodestar::kernels
