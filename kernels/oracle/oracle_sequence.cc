// SPDX-License-Identifier: Apache-2.0

// Implements the operations over tokens: attention, embedding, and the loss.
#include <cmath>
#include <limits>

#include "kernels/buffer_checks.h"
#include "kernels/oracle/oracle_device.h"

namespace lodestar::oracle {
namespace {

// Computes the addresses of one head in qkv [batch, tokens, 3, heads, head_width] and y [batch,
// tokens, heads, head_width].
struct HeadView {
  const kernels::AttentionShape& shape;
  int64_t sample;
  int64_t head;

  int64_t Query(int64_t token) const { return Qkv(token, 0); }
  int64_t Key(int64_t token) const { return Qkv(token, 1); }
  int64_t Value(int64_t token) const { return Qkv(token, 2); }
  int64_t Output(int64_t token) const {
    return ((sample * shape.tokens + token) * shape.heads + head) * shape.head_width;
  }
  int64_t LogSumExp(int64_t token) const {
    return (sample * shape.heads + head) * shape.tokens + token;
  }
  // Returns the factor that dropout applies to a probability.
  double Kept(int64_t query, int64_t key) const {
    if (shape.dropout.rate == 0.0) return 1.0;
    const int64_t element = LogSumExp(query) * shape.tokens + key;
    return kernels::IsKept(shape.dropout, element) ? 1.0 / (1.0 - shape.dropout.rate) : 0.0;
  }

 private:
  int64_t Qkv(int64_t token, int64_t which) const {
    return (((sample * shape.tokens + token) * 3 + which) * shape.heads + head) * shape.head_width;
  }
};

double Dot(const double* a, const double* b, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

double LogSumExp(const double* x, int64_t n) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < n; ++i) largest = std::fmax(largest, x[i]);
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - largest);
  return largest + std::log(sum);
}

// Computes attention of one head. `p` is scratch memory for one number per token.
void ForwardHead(double* y, double* log_sum_exp, const double* qkv, double* p, const HeadView& at) {
  const int64_t width = at.shape.head_width;
  const double scale = 1.0 / std::sqrt(static_cast<double>(width));
  for (int64_t query = 0; query < at.shape.tokens; ++query) {
    for (int64_t key = 0; key <= query; ++key) {
      p[key] = scale * Dot(qkv + at.Query(query), qkv + at.Key(key), width);
    }
    const double total = LogSumExp(p, query + 1);
    log_sum_exp[at.LogSumExp(query)] = total;
    for (int64_t key = 0; key <= query; ++key) {
      p[key] = std::exp(p[key] - total) * at.Kept(query, key);
    }
    for (int64_t i = 0; i < width; ++i) {
      double sum = 0.0;
      for (int64_t key = 0; key <= query; ++key) {
        sum += p[key] * qkv[at.Value(key) + i];
      }
      y[at.Output(query) + i] = sum;
    }
  }
}

// For one query, s are the scores, p = softmax(s), and dp is the gradient of p. The gradient of s
// is ds = p * (dp - sum(p * dp)). sum(p * dp) is the dot product of dy and y, even with dropout
// between p and y.
void BackwardHead(double* dqkv, const double* dy, const double* y, const double* log_sum_exp,
                  const double* qkv, const HeadView& at) {
  const int64_t width = at.shape.head_width;
  const double scale = 1.0 / std::sqrt(static_cast<double>(width));
  for (int64_t query = 0; query < at.shape.tokens; ++query) {
    const double* g = dy + at.Output(query);
    const double mean_dp = Dot(g, y + at.Output(query), width);
    for (int64_t key = 0; key <= query; ++key) {
      const double score = scale * Dot(qkv + at.Query(query), qkv + at.Key(key), width);
      const double p = std::exp(score - log_sum_exp[at.LogSumExp(query)]);
      const double kept = at.Kept(query, key);
      const double dp = kept * Dot(g, qkv + at.Value(key), width);
      const double ds = p * (dp - mean_dp) * scale;
      for (int64_t i = 0; i < width; ++i) {
        dqkv[at.Query(query) + i] += ds * qkv[at.Key(key) + i];
        dqkv[at.Key(key) + i] += ds * qkv[at.Query(query) + i];
        dqkv[at.Value(key) + i] += p * kept * g[i];
      }
    }
  }
}

}  // namespace

int64_t OracleDevice::AttentionWorkspaceElements(const kernels::AttentionShape& shape) {
  return shape.tokens;
}

void OracleDevice::AttentionForward(kernels::Buf y, kernels::Buf log_sum_exp, kernels::Buf qkv,
                                    kernels::Buf workspace, const kernels::AttentionShape& shape) {
  const int64_t outputs = shape.batch * shape.tokens * shape.heads * shape.head_width;
  kernels::CheckBuf(y, kernels::DType::kF64, outputs);
  kernels::CheckBuf(log_sum_exp, kernels::DType::kF64, shape.batch * shape.heads * shape.tokens);
  kernels::CheckBuf(qkv, kernels::DType::kF64, 3 * outputs);
  kernels::CheckBuf(workspace, kernels::DType::kF64, shape.tokens);
  for (int64_t sample = 0; sample < shape.batch; ++sample) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      ForwardHead(y.as<double>(), log_sum_exp.as<double>(), qkv.as<double>(),
                  workspace.as<double>(), HeadView{shape, sample, head});
    }
  }
}

void OracleDevice::AttentionBackward(kernels::Buf dqkv, kernels::Buf dy, kernels::Buf y,
                                     kernels::Buf log_sum_exp, kernels::Buf qkv,
                                     kernels::Buf /*workspace*/,
                                     const kernels::AttentionShape& shape) {
  const int64_t outputs = shape.batch * shape.tokens * shape.heads * shape.head_width;
  for (const kernels::Buf& buf : {dqkv, qkv})
    kernels::CheckBuf(buf, kernels::DType::kF64, 3 * outputs);
  for (const kernels::Buf& buf : {dy, y}) kernels::CheckBuf(buf, kernels::DType::kF64, outputs);
  kernels::CheckBuf(log_sum_exp, kernels::DType::kF64, shape.batch * shape.heads * shape.tokens);
  for (int64_t i = 0; i < 3 * outputs; ++i) dqkv.as<double>()[i] = 0.0;
  for (int64_t sample = 0; sample < shape.batch; ++sample) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      BackwardHead(dqkv.as<double>(), dy.as<double>(), y.as<double>(), log_sum_exp.as<double>(),
                   qkv.as<double>(), HeadView{shape, sample, head});
    }
  }
}

void OracleDevice::EmbedForward(kernels::Buf y, kernels::Buf tokens, kernels::Buf token_table,
                                kernels::Buf position_table, int64_t rows, int64_t context_tokens,
                                int64_t width) {
  kernels::CheckBuf(y, kernels::DType::kF64, rows * width);
  kernels::CheckBuf(tokens, kernels::DType::kI32, rows);
  kernels::CheckBuf(position_table, kernels::DType::kF64, context_tokens * width);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t token = tokens.as<int32_t>()[row];
    LODESTAR_CHECK(token >= 0);
    kernels::CheckBuf(token_table, kernels::DType::kF64, (token + 1) * width);
    for (int64_t i = 0; i < width; ++i) {
      y.as<double>()[row * width + i] =
          token_table.as<double>()[token * width + i] +
          position_table.as<double>()[row % context_tokens * width + i];
    }
  }
}

void OracleDevice::EmbedBackward(kernels::Buf dtoken_table, kernels::Buf dposition_table,
                                 kernels::Buf dy, kernels::Buf tokens, int64_t rows,
                                 int64_t context_tokens, int64_t width, int64_t vocabulary) {
  kernels::CheckBuf(dtoken_table, kernels::DType::kF64, vocabulary * width);
  kernels::CheckBuf(dposition_table, kernels::DType::kF64, context_tokens * width);
  kernels::CheckBuf(dy, kernels::DType::kF64, rows * width);
  kernels::CheckBuf(tokens, kernels::DType::kI32, rows);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t token = tokens.as<int32_t>()[row];
    LODESTAR_CHECK(token >= 0 && token < vocabulary);
    for (int64_t i = 0; i < width; ++i) {
      dtoken_table.as<double>()[token * width + i] += dy.as<double>()[row * width + i];
      dposition_table.as<double>()[row % context_tokens * width + i] +=
          dy.as<double>()[row * width + i];
    }
  }
}

void OracleDevice::SoftmaxCrossEntropy(kernels::Buf losses, kernels::Buf correct,
                                       kernels::Buf logits, kernels::Buf targets, int64_t rows,
                                       int64_t classes, int64_t row_stride, double scale) {
  LODESTAR_CHECK(row_stride >= classes);
  kernels::CheckBuf(losses, kernels::DType::kF64, rows);
  kernels::CheckOptionalBuf(correct, kernels::DType::kI32, rows);
  kernels::CheckBuf(logits, kernels::DType::kF64, rows * row_stride);
  kernels::CheckBuf(targets, kernels::DType::kI32, rows);
  for (int64_t row = 0; row < rows; ++row) {
    double* x = logits.as<double>() + row * row_stride;
    const int64_t target = targets.as<int32_t>()[row];
    LODESTAR_CHECK(target >= 0 && target < classes);
    int64_t largest = 0;
    for (int64_t i = 1; i < classes; ++i) {
      if (x[i] > x[largest]) largest = i;
    }
    const double total = LogSumExp(x, classes);
    losses.as<double>()[row] = total - x[target];
    if (correct) correct.as<int32_t>()[row] = largest == target ? 1 : 0;
    if (scale == 0.0) continue;
    for (int64_t i = 0; i < classes; ++i) {
      x[i] = (std::exp(x[i] - total) - (i == target ? 1.0 : 0.0)) * scale;
    }
    for (int64_t i = classes; i < row_stride; ++i) x[i] = 0.0;
  }
}

}  // namespace lodestar::oracle
