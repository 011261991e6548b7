// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/attention_comparison.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cuda/errors.h"
#include "kernels/cuda/library_attention.h"

namespace lodestar::cuda {
namespace {

constexpr double kRowTolerance = 2e-2;
constexpr double kLogSumExpTolerance = 1e-3;
// Typical relative error of a rounding to bf16. The largest relative error is twice as large.
constexpr double kRounding = 1.0 / 512;
constexpr size_t kAlignment = 256;

double ValueOf(uint16_t bf16) { return std::bit_cast<float>(uint32_t{bf16} << 16); }

// The rows of one of `parts` matrices, which lie side by side in one tensor.
class Rows {
 public:
  Rows(std::span<const uint16_t> values, const kernels::AttentionShape& shape, int part, int parts)
      : values_(values), shape_(shape), part_(part), parts_(parts) {}

  int64_t count() const { return shape_.tokens * shape_.heads; }
  std::span<const uint16_t> At(int64_t row) const {
    const int64_t token = row / shape_.heads, head = row % shape_.heads;
    const int64_t begin = ((token * parts_ + part_) * shape_.heads + head) * shape_.head_width;
    return values_.subspan(begin, shape_.head_width);
  }
  std::string NameOf(int64_t row) const {
    return absl::StrCat("token ", row / shape_.heads, ", head ", row % shape_.heads);
  }
  double NormOf(int64_t row) const {
    double squares = 0.0;
    for (const uint16_t value : At(row)) squares += ValueOf(value) * ValueOf(value);
    return std::sqrt(squares);
  }
  // Returns the root mean square of the norms of all rows.
  double UsualNorm() const {
    double squares = 0.0;
    for (int64_t row = 0; row < count(); ++row) squares += NormOf(row) * NormOf(row);
    return std::sqrt(squares / static_cast<double>(count()));
  }

 private:
  std::span<const uint16_t> values_;
  kernels::AttentionShape shape_;
  int part_, parts_;
};

// The results of the comparisons so far.
struct Findings {
  bool has_values = false;  // true if our values are not all zero
  bool is_finite = true;    // true if our values are finite
  std::string difference;   // describes the first difference

  // `noise` is added to the limit of each row. It is the difference that rounding alone may cause
  // if the terms of all rows' sums cancel.
  void CompareRows(const char* name, const Rows& library, const Rows& own, double noise) {
    const double usual = own.UsualNorm();
    has_values |= usual > 0.0;
    is_finite &= std::isfinite(usual);
    for (int64_t row = 0; row < own.count() && difference.empty(); ++row) {
      double squares = 0.0;
      for (int64_t i = 0; i < std::ssize(own.At(row)); ++i) {
        const double off = ValueOf(library.At(row)[i]) - ValueOf(own.At(row)[i]);
        squares += off * off;
      }
      const double limit = kRowTolerance * std::max(own.NormOf(row), usual) + noise;
      if (std::sqrt(squares) <= limit) continue;
      difference = absl::StrFormat("%s of %s is off by %.3g, at most %.3g are rounding", name,
                                   own.NameOf(row), std::sqrt(squares), limit);
    }
  }

  void CompareLogSumExp(const kernels::AttentionShape& shape, const std::vector<float>& library,
                        const std::vector<float>& own) {
    for (int64_t i = 0; i < std::ssize(own) && difference.empty(); ++i) {
      is_finite &= std::isfinite(own[i]);
      const double off = std::abs(double{library[i]} - own[i]);
      const double limit = kLogSumExpTolerance * std::max(1.0, std::abs(double{own[i]}));
      if (off <= limit) continue;
      difference = absl::StrFormat(
          "log_sum_exp of token %d, head %d is off by %.3g, at most %.3g are rounding",
          i % shape.tokens, i / shape.tokens, off, limit);
    }
  }

  Comparison Conclude() const {
    using Verdict = Comparison::Verdict;
    if (!has_values || !is_finite) return {.verdict = Verdict::kUndecided, .why = ""};
    if (difference.empty()) return {.verdict = Verdict::kEqual, .why = ""};
    return {.verdict = Verdict::kUnequal, .why = difference};
  }
};

// Copies `count` elements of device memory to *to. Blocks until the stream is idle.
template <typename T>
absl::Status Read(const void* from, int64_t count, cudaStream_t stream, std::vector<T>* to) {
  to->resize(count);
  cudaError_t error =
      cudaMemcpyAsync(to->data(), from, count * sizeof(T), cudaMemcpyDefault, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  return CudaStatus("comparing attention", error, "cudaMemcpyAsync");
}

int64_t OutputsOf(const kernels::AttentionShape& sample) {
  return sample.tokens * sample.heads * sample.head_width;
}

// Returns the outputs of a forward or backward pass. With `inputs`, also returns the inputs of a
// backward pass.
absl::StatusOr<AttentionSample> ReadSample(AttentionPass pass, const kernels::AttentionShape& shape,
                                           const AttentionTensors& tensors, bool inputs,
                                           cudaStream_t stream) {
  const int64_t outputs = OutputsOf(shape);
  AttentionSample sample;
  absl::Status status;
  if (pass == AttentionPass::kForward) {
    status = Read(tensors.y, outputs, stream, &sample.y);
    status.Update(
        Read(tensors.log_sum_exp, shape.heads * shape.tokens, stream, &sample.log_sum_exp));
  } else {
    status = Read(tensors.dqkv, 3 * outputs, stream, &sample.dqkv);
    if (inputs) {
      status.Update(Read(tensors.qkv, 3 * outputs, stream, &sample.qkv));
      status.Update(Read(tensors.dy, outputs, stream, &sample.dy));
    }
  }
  if (!status.ok()) return status;
  return sample;
}

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Runs our kernels for one sample. The results go to scratch memory, and the output pointers of
// *tensors are set to it.
absl::Status RunOwn(AttentionPass pass, const kernels::AttentionShape& shape,
                    const CudaAttention& own,
                    absl::FunctionRef<absl::StatusOr<void*>(size_t bytes)> scratch,
                    cudaStream_t stream, AttentionTensors* tensors) {
  const int64_t outputs = OutputsOf(shape);
  const int64_t rows = shape.heads * shape.tokens;
  const int64_t workspace_elements = CudaAttention::WorkspaceElements(shape, kernels::DType::kBf16);
  const bool is_forward = pass == AttentionPass::kForward;
  const size_t matrix_bytes =
      Aligned((is_forward ? 1 : 3) * outputs * kernels::DTypeBytes(kernels::DType::kBf16));
  const size_t other_bytes = is_forward
                                 ? rows * sizeof(float)
                                 : workspace_elements * kernels::DTypeBytes(kernels::DType::kBf16);
  const absl::StatusOr<void*> memory = scratch(matrix_bytes + other_bytes);
  if (!memory.ok()) return memory.status();
  void* const other = static_cast<char*>(*memory) + matrix_bytes;
  if (is_forward) {
    tensors->y = *memory;
    tensors->log_sum_exp = static_cast<float*>(other);
  } else {
    tensors->dqkv = *memory;
  }
  const auto matrix = [](const void* data, int64_t elements) {
    return kernels::Buf{const_cast<void*>(data), kernels::DType::kBf16, elements};
  };
  const kernels::Buf y = matrix(tensors->y, outputs), qkv = matrix(tensors->qkv, 3 * outputs);
  const kernels::Buf log_sum_exp{tensors->log_sum_exp, kernels::DType::kF32, rows};
  const cudaError_t error =
      is_forward ? own.Forward(y, log_sum_exp, qkv, shape, stream)
                 : own.Backward(matrix(tensors->dqkv, 3 * outputs), matrix(tensors->dy, outputs), y,
                                log_sum_exp, qkv, matrix(other, workspace_elements), shape, stream);
  return CudaStatus("comparing attention", error, is_forward ? "Forward" : "Backward");
}

}  // namespace

Comparison CompareAttention(AttentionPass pass, const kernels::AttentionShape& shape,
                            const AttentionSample& library, const AttentionSample& own) {
  Findings findings;
  if (pass == AttentionPass::kForward) {
    findings.CompareRows("y", Rows(library.y, shape, 0, 1), Rows(own.y, shape, 0, 1), 0.0);
    findings.CompareLogSumExp(shape, library.log_sum_exp, own.log_sum_exp);
    return findings.Conclude();
  }
  const auto usual = [&](const std::vector<uint16_t>& values, int part, int parts) {
    return Rows(values, shape, part, parts).UsualNorm();
  };
  // Estimates the rounding error of ds, the gradient of the scores:
  // - A product dy v is about |dy| |v| / sqrt(width), scores are scaled by 1 / sqrt(width), and a
  //   probability is about 1 / tokens. So ds is about |dy| |v| / (width tokens).
  // - A row of dq is the sum over tokens of ds times a row of the keys. A row of dk is the sum over
  //   tokens of ds times a row of the queries.
  // - If the terms of all sums cancel (equal keys, or a single token), dq and dk consist only of
  //   the rounding errors of ds. The sum of `tokens` errors is about sqrt(tokens) times one error.
  const double rounding_of_ds = kRounding * usual(own.dy, 0, 1) * usual(own.qkv, 2, 3) /
                                static_cast<double>(shape.head_width) /
                                std::sqrt(static_cast<double>(shape.tokens));
  const char* const names[] = {"dq", "dk", "dv"};
  const double noises[] = {rounding_of_ds * usual(own.qkv, 1, 3),
                           rounding_of_ds * usual(own.qkv, 0, 3), 0.0};
  for (int part = 0; part < 3; ++part) {
    findings.CompareRows(names[part], Rows(library.dqkv, shape, part, 3),
                         Rows(own.dqkv, shape, part, 3), noises[part]);
  }
  return findings.Conclude();
}

absl::StatusOr<Comparison> CompareWithOwnAttention(
    AttentionPass pass, const kernels::AttentionShape& shape, const AttentionTensors& tensors,
    const CudaAttention& own, absl::FunctionRef<absl::StatusOr<void*>(size_t bytes)> scratch,
    cudaStream_t stream) {
  kernels::AttentionShape one = shape;
  one.batch = 1;
  Comparison result = {.verdict = Comparison::Verdict::kUndecided, .why = ""};
  for (const int64_t index : std::set<int64_t>{0, shape.batch - 1}) {
    AttentionTensors sample = SamplesFrom(tensors, index, shape);
    const absl::StatusOr<AttentionSample> library =
        ReadSample(pass, one, sample, /*inputs=*/false, stream);
    if (!library.ok()) return library.status();
    if (absl::Status status = RunOwn(pass, one, own, scratch, stream, &sample); !status.ok()) {
      return status;
    }
    const absl::StatusOr<AttentionSample> ours =
        ReadSample(pass, one, sample, /*inputs=*/true, stream);
    if (!ours.ok()) return ours.status();
    Comparison found = CompareAttention(pass, one, *library, *ours);
    if (found.verdict == Comparison::Verdict::kUnequal) {
      found.why = absl::StrCat(found.why, " (sample ", index, " of ", shape.batch, ")");
      return found;
    }
    if (found.verdict == Comparison::Verdict::kEqual) result = found;
  }
  return result;
}

}  // namespace lodestar::cuda
