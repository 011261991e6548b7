// SPDX-License-Identifier: Apache-2.0

// Implements attention, embedding tables and the loss.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/buffer_checks.h"
#include "kernels/cpu/cpu_device.h"

namespace lodestar::cpu {
namespace {

// Number of queries of one sample and head that causal self-attention processes at a time. Their
// scores fit into the second-level cache. Scores are computed only for keys up to the last of these
// queries.
constexpr int64_t kQueryBlock = 64;

int64_t PaddedTokens(const kernels::AttentionShape& s) { return (s.tokens + 15) / 16 * 16; }

// The functions below return strides and offsets in qkv [batch, tokens, 3, heads, head_width] and
// in y [batch, tokens, heads, head_width].
int64_t OutputStride(const kernels::AttentionShape& s) { return s.heads * s.head_width; }
int64_t QkvStride(const kernels::AttentionShape& s) { return 3 * OutputStride(s); }
int64_t QkvOffset(const kernels::AttentionShape& s, int64_t sample, int64_t head) {
  return sample * s.tokens * QkvStride(s) + head * s.head_width;
}
int64_t OutputOffset(const kernels::AttentionShape& s, int64_t sample, int64_t head) {
  return sample * s.tokens * OutputStride(s) + head * s.head_width;
}

// A block of queries of one head.
struct Block {
  const kernels::AttentionShape& shape;
  int64_t first;  // index of the first query
  int64_t queries;
  int64_t keys;  // number of keys that the last query sees
  float scale;

  const simd::Loops& loops;
  float* pack;

  Block(const kernels::AttentionShape& s, int64_t first_query, const simd::Loops& inner_loops,
        float* pack_memory)
      : shape(s),
        first(first_query),
        queries(std::min(kQueryBlock, s.tokens - first_query)),
        keys(first + queries),
        scale(static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_width)))),
        loops(inner_loops),
        pack(pack_memory) {}

  // Computes scores[queries, keys] = rows keys_or_values^T. Rows of `scores` lie PaddedTokens()
  // elements apart.
  void Scores(float* scores, const float* rows, int64_t row_stride,
              const float* keys_or_values) const {
    loops.gemm({.transpose_b = true,
                .m = queries,
                .n = keys,
                .k = shape.head_width,
                .lda = row_stride,
                .ldb = QkvStride(shape),
                .ldc = PaddedTokens(shape)},
               1.0f, rows, keys_or_values, scores, false, pack);
  }
  // Computes out[queries, head_width] = p x.
  void Mix(float* out, int64_t out_stride, const float* p, const float* x) const {
    loops.gemm({.m = queries,
                .n = shape.head_width,
                .k = keys,
                .lda = PaddedTokens(shape),
                .ldb = QkvStride(shape),
                .ldc = out_stride},
               1.0f, p, x, out, false, pack);
  }
  // Computes out[keys, head_width] += p^T x.
  void MixTransposed(float* out, const float* p, const float* x, int64_t x_stride) const {
    loops.gemm({.transpose_a = true,
                .m = keys,
                .n = shape.head_width,
                .k = queries,
                .lda = PaddedTokens(shape),
                .ldb = x_stride,
                .ldc = QkvStride(shape)},
               1.0f, p, x, out, true, pack);
  }
};

// Applies dropout to the probabilities of one (sample, head), where part = sample * heads + head.
class HeadDropout {
 public:
  HeadDropout(const kernels::AttentionShape& s, int64_t part)
      : mask_(s.dropout),
        tokens_(s.tokens),
        first_(s.dropout.first_element + part * s.tokens * s.tokens),
        threshold_(kernels::DropoutThreshold(s.dropout.rate)),
        scale_(static_cast<float>(kernels::DropoutScale(s.dropout.rate))) {}

  // Sets x[queries, keys] = kept ? x / (1 - rate) : 0, for the keys that each query sees.
  void Apply(float* x, const Block& block) const {
    if (mask_.rate == 0.0) return;
    for (int64_t row = 0; row < block.queries; ++row) {
      const int64_t query = block.first + row;
      ApplyRow(x + row * PaddedTokens(block.shape), first_ + query * tokens_, query + 1);
    }
  }

 private:
  void ApplyRow(float* x, int64_t first_element, int64_t n) const {
    int64_t i = 0;
    while (i < n) {
      const int64_t element = first_element + i;
      const PhiloxWords words = kernels::DropoutWords(mask_, element / 4);
      for (int64_t lane = element % 4; lane < 4 && i < n; ++lane, ++i) {
        x[i] = words.word[lane] >= threshold_ ? x[i] * scale_ : 0.0f;
      }
    }
  }

  const kernels::DropoutMask& mask_;
  int64_t tokens_;
  int64_t first_;  // element of (query 0, key 0) in the mask
  uint32_t threshold_;
  float scale_;
};

void CheckShape(const kernels::AttentionShape& s) {
  LODESTAR_CHECK(s.dropout.rate >= 0.0 && s.dropout.rate < 1.0 && s.dropout.first_element >= 0);
  LODESTAR_CHECK(s.batch >= 0 && s.tokens >= 0 && s.heads >= 0 && s.head_width > 0);
}

}  // namespace

// Each thread needs memory for the scores of one block and their gradient, and for one number per
// query.
int64_t CpuDevice::AttentionWorkspaceElements(const kernels::AttentionShape& shape) {
  return pool_.num_threads() * (2 * kQueryBlock * PaddedTokens(shape) + kQueryBlock);
}

void CpuDevice::AttentionForward(kernels::Buf y, kernels::Buf log_sum_exp, kernels::Buf qkv,
                                 kernels::Buf workspace, const kernels::AttentionShape& s) {
  CheckShape(s);
  const int64_t outputs = s.batch * s.tokens * OutputStride(s);
  kernels::CheckBuf(y, kernels::DType::kF32, outputs);
  kernels::CheckBuf(log_sum_exp, kernels::DType::kF32, s.batch * s.heads * s.tokens);
  kernels::CheckBuf(qkv, kernels::DType::kF32, 3 * outputs);
  kernels::CheckBuf(workspace, kernels::DType::kF32, AttentionWorkspaceElements(s));
  pool_.Run(s.batch * s.heads, [&](int64_t part, int thread) {
    const int64_t sample = part / s.heads;
    const int64_t head = part % s.heads;
    const HeadDropout dropout(s, part);
    float* scores =
        workspace.as<float>() + thread * (2 * kQueryBlock * PaddedTokens(s) + kQueryBlock);
    const float* q = qkv.as<float>() + QkvOffset(s, sample, head);
    const float* k = q + OutputStride(s);
    const float* v = k + OutputStride(s);
    for (int64_t first = 0; first < s.tokens; first += kQueryBlock) {
      const Block block(s, first, loops_, pack_.get() + thread * simd::kGemmPackElements);
      block.Scores(scores, q + first * QkvStride(s), QkvStride(s), k);
      loops_.causal_softmax(scores, log_sum_exp.as<float>() + part * s.tokens + first,
                            block.queries, first, block.keys, PaddedTokens(s), block.scale);
      dropout.Apply(scores, block);
      block.Mix(y.as<float>() + OutputOffset(s, sample, head) + first * OutputStride(s),
                OutputStride(s), scores, v);
    }
  });
}

void CpuDevice::AttentionBackward(kernels::Buf dqkv, kernels::Buf dy, kernels::Buf y,
                                  kernels::Buf log_sum_exp, kernels::Buf qkv,
                                  kernels::Buf workspace, const kernels::AttentionShape& s) {
  CheckShape(s);
  const int64_t outputs = s.batch * s.tokens * OutputStride(s);
  for (const kernels::Buf& buf : {dqkv, qkv})
    kernels::CheckBuf(buf, kernels::DType::kF32, 3 * outputs);
  for (const kernels::Buf& buf : {dy, y}) kernels::CheckBuf(buf, kernels::DType::kF32, outputs);
  kernels::CheckBuf(log_sum_exp, kernels::DType::kF32, s.batch * s.heads * s.tokens);
  kernels::CheckBuf(workspace, kernels::DType::kF32, AttentionWorkspaceElements(s));
  pool_.Run(s.batch * s.heads, [&](int64_t part, int thread) {
    const int64_t sample = part / s.heads;
    const int64_t head = part % s.heads;
    const HeadDropout dropout(s, part);
    float* p = workspace.as<float>() + thread * (2 * kQueryBlock * PaddedTokens(s) + kQueryBlock);
    float* ds = p + kQueryBlock * PaddedTokens(s);
    float* delta = ds + kQueryBlock * PaddedTokens(s);
    const int64_t offset = QkvOffset(s, sample, head);
    const float* q = qkv.as<float>() + offset;
    const float* k = q + OutputStride(s);
    const float* v = k + OutputStride(s);
    float* dq = dqkv.as<float>() + offset;
    float* dk = dq + OutputStride(s);
    float* dv = dk + OutputStride(s);
    for (int64_t token = 0; token < s.tokens; ++token) {
      std::memset(dk + token * QkvStride(s), 0, s.head_width * sizeof(float));
      std::memset(dv + token * QkvStride(s), 0, s.head_width * sizeof(float));
    }
    for (int64_t first = 0; first < s.tokens; first += kQueryBlock) {
      const Block block(s, first, loops_, pack_.get() + thread * simd::kGemmPackElements);
      const int64_t at = OutputOffset(s, sample, head) + first * OutputStride(s);
      const float* g = dy.as<float>() + at;
      for (int64_t query = 0; query < block.queries; ++query) {
        delta[query] = loops_.dot(g + query * OutputStride(s),
                                  y.as<float>() + at + query * OutputStride(s), s.head_width);
      }
      block.Scores(p, q + first * QkvStride(s), QkvStride(s), k);
      block.Scores(ds, g, OutputStride(s), v);
      dropout.Apply(ds, block);
      loops_.causal_softmax_backward(p, ds, log_sum_exp.as<float>() + part * s.tokens + first,
                                     delta, block.queries, first, block.keys, PaddedTokens(s),
                                     block.scale);
      dropout.Apply(p, block);
      block.Mix(dq + first * QkvStride(s), QkvStride(s), ds, k);
      block.MixTransposed(dk, ds, q + first * QkvStride(s), QkvStride(s));
      block.MixTransposed(dv, p, g, OutputStride(s));
    }
  });
}

void CpuDevice::EmbedForward(kernels::Buf y, kernels::Buf tokens, kernels::Buf token_table,
                             kernels::Buf position_table, int64_t rows, int64_t context_tokens,
                             int64_t width) {
  kernels::CheckBuf(y, kernels::DType::kF32, rows * width);
  kernels::CheckBuf(tokens, kernels::DType::kI32, rows);
  kernels::CheckBuf(position_table, kernels::DType::kF32, context_tokens * width);
  kernels::CheckBuf(token_table, kernels::DType::kF32, 0);
  const int64_t vocabulary = token_table.num_elements / width;
  ForRanges(rows, 1, rows * width, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t token = tokens.as<int32_t>()[row];
      LODESTAR_CHECK(token >= 0 && token < vocabulary) << "token=" << token;
      loops_.add(y.as<float>() + row * width, token_table.as<float>() + token * width,
                 position_table.as<float>() + row % context_tokens * width, width);
    }
  });
}

// Each range of ForRanges() has some columns of both tables, and adds all rows of dy in order. So
// the sums do not depend on the number of threads.
void CpuDevice::EmbedBackward(kernels::Buf dtoken_table, kernels::Buf dposition_table,
                              kernels::Buf dy, kernels::Buf tokens, int64_t rows,
                              int64_t context_tokens, int64_t width, int64_t vocabulary) {
  kernels::CheckBuf(dtoken_table, kernels::DType::kF32, vocabulary * width);
  kernels::CheckBuf(dposition_table, kernels::DType::kF32, context_tokens * width);
  kernels::CheckBuf(dy, kernels::DType::kF32, rows * width);
  kernels::CheckBuf(tokens, kernels::DType::kI32, rows);
  ForRanges(width, 16, 2 * rows * width, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t token = tokens.as<int32_t>()[row];
      LODESTAR_CHECK(token >= 0 && token < vocabulary) << "token=" << token;
      const float* g = dy.as<float>() + row * width + begin;
      float* to_token = dtoken_table.as<float>() + token * width + begin;
      float* to_position = dposition_table.as<float>() + row % context_tokens * width + begin;
      loops_.add(to_token, to_token, g, end - begin);
      loops_.add(to_position, to_position, g, end - begin);
    }
  });
}

void CpuDevice::SoftmaxCrossEntropy(kernels::Buf losses, kernels::Buf correct, kernels::Buf logits,
                                    kernels::Buf targets, int64_t rows, int64_t classes,
                                    int64_t row_stride, double scale) {
  LODESTAR_CHECK(row_stride >= classes);
  kernels::CheckBuf(losses, kernels::DType::kF32, rows);
  kernels::CheckOptionalBuf(correct, kernels::DType::kI32, rows);
  kernels::CheckBuf(logits, kernels::DType::kF32, rows * row_stride);
  kernels::CheckBuf(targets, kernels::DType::kI32, rows);
  ForRanges(rows, 1, 2 * rows * classes, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t row = begin; row < end; ++row) {
      const int32_t target = targets.as<int32_t>()[row];
      LODESTAR_CHECK(target >= 0 && target < classes) << "target=" << target;
      int32_t hit = 0;
      float* x = logits.as<float>() + row * row_stride;
      losses.as<float>()[row] =
          loops_.cross_entropy(x, target, classes, static_cast<float>(scale), &hit);
      if (scale != 0.0) std::fill(x + classes, x + row_stride, 0.0f);
      if (correct) correct.as<int32_t>()[row] = hit;
    }
  });
}

}  // namespace lodestar::cpu
