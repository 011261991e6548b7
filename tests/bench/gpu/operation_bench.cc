// SPDX-License-Identifier: Apache-2.0

#include "tests/bench/gpu/operation_bench.h"

#include <algorithm>
#include <random>
#include <vector>

#include "common/params/encoding.h"
#include "common/runtime/status_macros.h"
#include "tests/bench/gpu/operation_timer.h"

namespace lodestar {
namespace {

// Work of one run of an operation.
struct Work {
  double bytes = 0.0;
  double flops = 0.0;
};

class OperationBench {
 public:
  OperationBench(kernels::Device* device, const OperationShapes& shapes, int repeats,
                 const OperationReports& reports)
      : device_(device),
        dtype_(device->capabilities().compute),
        shapes_(shapes),
        rows_(shapes.batch * shapes.tokens),
        width_(shapes.heads * shapes.head_width),
        timer_(device, repeats),
        reports_(reports) {}
  ~OperationBench() {
    ReleaseAll();
    device_->Release(pattern_.data);
  }

  absl::Status RunAttention(const std::string& name_suffix) {
    RETURN_IF_ERROR(MakePattern());
    return TimeAttention(name_suffix);
  }

  // Each part allocates and releases its own memory, so that only the largest part must fit.
  absl::Status Run() {
    RETURN_IF_ERROR(MakePattern());
    for (const auto part :
         {&OperationBench::MeasureCeilings, &OperationBench::TimeNorms,
          &OperationBench::TimeAttention, &OperationBench::TimeEmbedding,
          &OperationBench::TimeLayers, &OperationBench::TimeHead, &OperationBench::TimeOptimizer,
          &OperationBench::TimeEncodings, &OperationBench::TimeHostCopies}) {
      RETURN_IF_ERROR((this->*part)());
      ReleaseAll();
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kPattern = int64_t{1} << 22;

  void ReleaseAll() {
    for (void* memory : memory_) device_->Release(memory);
    memory_.clear();
  }

  absl::Status MakePattern() {
    std::minstd_rand generator(1);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    std::vector<float> values(kPattern);
    for (float& value : values) value = uniform(generator);
    ASSIGN_OR_RETURN(void* memory, device_->Allocate(kPattern * sizeof(float)));
    pattern_ = kernels::Buf{memory, kernels::DType::kF32, kPattern};
    device_->Copy(memory, values.data(), kPattern * sizeof(float), kernels::StreamKind::kCompute);
    return device_->Synchronize(device_->Record(kernels::StreamKind::kCompute));
  }

  // Returns random numbers in [-largest, largest), which repeat after kPattern elements. On equal
  // numbers a card would draw less power and run faster.
  absl::StatusOr<kernels::Buf> New(int64_t elements, kernels::DType dtype, double largest) {
    ASSIGN_OR_RETURN(void* memory, device_->Allocate(elements * kernels::DTypeBytes(dtype)));
    memory_.push_back(memory);
    const kernels::Buf buf{memory, dtype, elements};
    if (largest == 0.0) device_->Fill(buf, 0.0);
    for (int64_t begin = 0; begin < elements && largest != 0.0; begin += kPattern) {
      const int64_t size = std::min(kPattern, elements - begin);
      device_->Cast(buf.Slice(begin, size), pattern_.Slice(0, size), largest,
                    kernels::StreamKind::kCompute);
    }
    return buf;
  }
  absl::StatusOr<kernels::Buf> New(int64_t elements, double largest) {
    return New(elements, dtype_, largest);
  }
  // Returns memory for statistics or gradients of parameters, which are fp32.
  absl::StatusOr<kernels::Buf> NewFloats(int64_t elements, double largest) {
    return New(elements, kernels::DType::kF32, largest);
  }
  absl::StatusOr<kernels::Buf> NewTokens() {
    ASSIGN_OR_RETURN(const kernels::Buf tokens, New(rows_, kernels::DType::kI32, 0.0));
    std::vector<int32_t> values(rows_);
    for (int64_t i = 0; i < rows_; ++i) {
      values[i] = static_cast<int32_t>((i * i * 7 + i * 13 + 5) % shapes_.vocabulary);
    }
    device_->Copy(tokens.data, values.data(), values.size() * sizeof(int32_t),
                  kernels::StreamKind::kCompute);
    RETURN_IF_ERROR(device_->Synchronize(device_->Record(kernels::StreamKind::kCompute)));
    return tokens;
  }

  absl::Status Time(const std::string& name, const Work& work,
                    const std::function<void()>& operation) {
    return Time(name, work, {}, operation);
  }
  absl::Status Time(const std::string& name, const Work& work,
                    const std::vector<kernels::Buf>& overwritten,
                    const std::function<void()>& operation) {
    ASSIGN_OR_RETURN(const double seconds, timer_.Seconds(overwritten, operation));
    reports_.operation(
        {.name = name, .seconds = seconds, .bytes = work.bytes, .flops = work.flops});
    return absl::OkStatus();
  }

  absl::Status MeasureCeilings() {
    const int64_t bytes = shapes_.copy_bytes, side = shapes_.product_side;
    ASSIGN_OR_RETURN(const kernels::Buf from, NewFloats(bytes / 4, 1.0));
    ASSIGN_OR_RETURN(const kernels::Buf to, NewFloats(bytes / 4, 0.0));
    ASSIGN_OR_RETURN(const double copy_seconds, timer_.Seconds({}, [&] {
      device_->Copy(to.data, from.data, bytes, kernels::StreamKind::kCompute);
    }));
    ASSIGN_OR_RETURN(const kernels::Buf a, New(side * side, 0.37));
    ASSIGN_OR_RETURN(const kernels::Buf b, New(side * side, 0.61));
    ASSIGN_OR_RETURN(const kernels::Buf c, New(side * side, 0.0));
    const kernels::MatMulShape shape{.m = side, .n = side, .k = side};
    ASSIGN_OR_RETURN(const double product_seconds, timer_.Seconds({}, [&] {
      device_->MatMul(shape, c, a, b, kernels::Accumulate::kSet);
    }));
    const auto cube = static_cast<double>(side) * static_cast<double>(side * side);
    reports_.ceilings({.bytes_per_second = 2.0 * static_cast<double>(bytes) / copy_seconds,
                       .flops_per_second = 2.0 * cube / product_seconds});
    return absl::OkStatus();
  }

  // Returns the bytes of one activation of the residual stream.
  double ActivationBytes() const {
    return static_cast<double>(rows_ * width_) * static_cast<double>(kernels::DTypeBytes(dtype_));
  }

  absl::Status TimeNorms() {
    const int64_t n = rows_ * width_;
    ASSIGN_OR_RETURN(const kernels::Buf y, New(n, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf sum, New(n, 0.2));
    ASSIGN_OR_RETURN(const kernels::Buf residual, New(n, 0.3));
    ASSIGN_OR_RETURN(const kernels::Buf branch, New(n, 0.1));
    ASSIGN_OR_RETURN(const kernels::Buf gamma, New(width_, 1.0));
    ASSIGN_OR_RETURN(const kernels::Buf beta, New(width_, 0.01));
    ASSIGN_OR_RETURN(const kernels::Buf mean, NewFloats(rows_, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf rstd, NewFloats(rows_, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf dgamma, NewFloats(width_, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf dbeta, NewFloats(width_, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf dx, New(n, 0.01));
    ASSIGN_OR_RETURN(const kernels::Buf dy, New(n, 0.01));
    const Work work{.bytes = 4 * ActivationBytes()};
    RETURN_IF_ERROR(Time("residual + norm forward", work, [&] {
      device_->ResidualNormForward(y, sum, mean, rstd, residual, branch, gamma, beta, rows_,
                                   width_);
    }));
    return Time("norm backward", work, {dx}, [&] {
      device_->NormBackward(dx, dgamma, dbeta, dy, sum, mean, rstd, gamma, rows_, width_,
                            kernels::Accumulate::kAdd, kernels::Accumulate::kSet);
    });
  }

  absl::Status TimeAttention() { return TimeAttention(""); }
  absl::Status TimeAttention(const std::string& name_suffix) {
    const kernels::AttentionShape shape{.batch = shapes_.batch,
                                        .tokens = shapes_.tokens,
                                        .heads = shapes_.heads,
                                        .head_width = shapes_.head_width};
    const int64_t n = rows_ * width_;
    ASSIGN_OR_RETURN(const kernels::Buf qkv, New(3 * n, 1.0));
    ASSIGN_OR_RETURN(const kernels::Buf dqkv, New(3 * n, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf y, New(n, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf dy, New(n, 0.01));
    ASSIGN_OR_RETURN(const kernels::Buf log_sum_exp, NewFloats(rows_ * shapes_.heads, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf workspace,
                     New(std::max<int64_t>(1, device_->AttentionWorkspaceElements(shape)), 0.0));
    // Attention is causal: forward takes half of 4 B H T^2 D FLOP, backward 2.5 times as many.
    const double forward = 2.0 * static_cast<double>(n) * static_cast<double>(shapes_.tokens);
    RETURN_IF_ERROR(Time("attention forward" + name_suffix, {.flops = forward}, [&] {
      device_->AttentionForward(y, log_sum_exp, qkv, workspace, shape);
    }));
    return Time("attention backward" + name_suffix, {.flops = 2.5 * forward}, [&] {
      device_->AttentionBackward(dqkv, dy, y, log_sum_exp, qkv, workspace, shape);
    });
  }

  absl::Status TimeEmbedding() {
    ASSIGN_OR_RETURN(const kernels::Buf tokens, NewTokens());
    ASSIGN_OR_RETURN(const kernels::Buf x, New(rows_ * width_, 0.3));
    ASSIGN_OR_RETURN(const kernels::Buf table, New(shapes_.vocabulary * width_, 0.02));
    ASSIGN_OR_RETURN(const kernels::Buf positions, New(shapes_.tokens * width_, 0.02));
    ASSIGN_OR_RETURN(const kernels::Buf dtable, NewFloats(shapes_.vocabulary * width_, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf dpositions, NewFloats(shapes_.tokens * width_, 0.0));
    RETURN_IF_ERROR(Time("embedding forward", {.bytes = 3 * ActivationBytes()}, [&] {
      device_->EmbedForward(x, tokens, table, positions, rows_, shapes_.tokens, width_);
    }));
    return Time("embedding backward", {.bytes = 2 * ActivationBytes()}, [&] {
      device_->EmbedBackward(dtable, dpositions, x, tokens, rows_, shapes_.tokens, width_,
                             shapes_.vocabulary);
    });
  }

  absl::Status TimeLayers() {
    RETURN_IF_ERROR(TimeLinear("qkv", width_, 3 * width_, kernels::Activation::kNone));
    RETURN_IF_ERROR(TimeLinear("projection", width_, width_, kernels::Activation::kNone));
    RETURN_IF_ERROR(TimeLinear("fc+gelu", width_, 4 * width_, kernels::Activation::kGeluTanh));
    RETURN_IF_ERROR(TimeLinear("fc projection", 4 * width_, width_, kernels::Activation::kNone));
    return TimeBackwardInput("fc projection's input and gelu backward", 4 * width_, width_);
  }

  // Times the call that the model makes. It includes the sums for the bias of the layer before the
  // GELU.
  absl::Status TimeBackwardInput(const std::string& name, int64_t in, int64_t out) {
    ASSIGN_OR_RETURN(const kernels::Buf dx, New(rows_ * in, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf dy, New(rows_ * out, 0.01));
    ASSIGN_OR_RETURN(const kernels::Buf pre, New(rows_ * in, 0.5));
    ASSIGN_OR_RETURN(const kernels::Buf weights, New(in * out, 0.02));
    ASSIGN_OR_RETURN(const kernels::Buf dbias, NewFloats(in, 0.0));
    const double flops = 2.0 * static_cast<double>(rows_) * static_cast<double>(in * out);
    return Time(name, {.flops = flops}, [&] {
      device_->LinearBackwardInput(dx, dbias, dy, pre, weights, rows_, in, out,
                                   kernels::Activation::kGeluTanh, kernels::WeightOrder::kInOut,
                                   kernels::Accumulate::kSet);
    });
  }

  absl::Status TimeLinear(const std::string& name, int64_t in, int64_t out,
                          kernels::Activation activation) {
    const bool has_activation = activation != kernels::Activation::kNone;
    ASSIGN_OR_RETURN(const kernels::Buf x, New(rows_ * in, 0.5));
    ASSIGN_OR_RETURN(const kernels::Buf dx, New(rows_ * in, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf y, New(rows_ * out, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf dy, New(rows_ * out, 0.01));
    ASSIGN_OR_RETURN(const kernels::Buf pre, New(has_activation ? rows_ * out : 1, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf weights, New(in * out, 0.02));
    ASSIGN_OR_RETURN(const kernels::Buf bias, New(out, 0.01));
    ASSIGN_OR_RETURN(const kernels::Buf dweights, NewFloats(in * out, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf dbias, NewFloats(out, 0.0));
    const kernels::Buf kept = has_activation ? pre : kernels::Buf{};
    const double flops = 2.0 * static_cast<double>(rows_) * static_cast<double>(in * out);
    RETURN_IF_ERROR(Time(name + " forward", {.flops = flops}, [&] {
      device_->LinearForward(y, kept, x, weights, bias, rows_, in, out, activation,
                             kernels::WeightOrder::kInOut);
    }));
    // With an activation, dy is overwritten by the gradient before the activation.
    const std::vector<kernels::Buf> overwritten =
        has_activation ? std::vector<kernels::Buf>{dy} : std::vector<kernels::Buf>{};
    return Time(name + " backward", {.flops = 2 * flops}, overwritten, [&] {
      device_->LinearBackward(dx, dweights, dbias, dy, kept, x, weights, rows_, in, out, activation,
                              kernels::WeightOrder::kInOut, kernels::Accumulate::kSet);
    });
  }

  // Times the head as the model has it: the table and the rows of logits are padded.
  absl::Status TimeHead() {
    const int64_t columns = shapes_.head_rows;
    ASSIGN_OR_RETURN(const kernels::Buf tokens, NewTokens());
    ASSIGN_OR_RETURN(const kernels::Buf x, New(rows_ * width_, 0.5));
    ASSIGN_OR_RETURN(const kernels::Buf dx, New(rows_ * width_, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf table, New(columns * width_, 0.02));
    ASSIGN_OR_RETURN(const kernels::Buf dtable, NewFloats(columns * width_, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf logits, New(rows_ * columns, 0.1));
    ASSIGN_OR_RETURN(const kernels::Buf losses, NewFloats(rows_, 0.0));
    const double elements = static_cast<double>(rows_) * static_cast<double>(columns);
    const double flops = 2.0 * elements * static_cast<double>(width_);
    RETURN_IF_ERROR(Time("head forward", {.flops = flops}, [&] {
      device_->LinearForward(logits, {}, x, table, {}, rows_, width_, columns,
                             kernels::Activation::kNone, kernels::WeightOrder::kOutIn);
    }));
    const Work loss{.bytes = 2.0 * elements * static_cast<double>(kernels::DTypeBytes(dtype_))};
    RETURN_IF_ERROR(Time("softmax cross-entropy", loss, {logits}, [&] {
      device_->SoftmaxCrossEntropy(losses, {}, logits, tokens, rows_, shapes_.vocabulary, columns,
                                   1e-3);
    }));
    return Time("head backward", {.flops = 2 * flops}, [&] {
      device_->LinearBackward(dx, dtable, {}, logits, {}, x, table, rows_, width_, columns,
                              kernels::Activation::kNone, kernels::WeightOrder::kOutIn,
                              kernels::Accumulate::kSet);
    });
  }

  // Weights, two moments and gradient are fp32, the narrow weights have the compute dtype. Nothing
  // is put back between runs, as a run changes the numbers too little to matter.
  absl::Status TimeOptimizer() {
    const int64_t n = shapes_.parameters;
    ASSIGN_OR_RETURN(const kernels::Buf weights, NewFloats(n, 0.1));
    ASSIGN_OR_RETURN(const kernels::Buf first, NewFloats(n, 0.01));
    ASSIGN_OR_RETURN(const kernels::Buf second, NewFloats(n, 0.0));
    ASSIGN_OR_RETURN(const kernels::Buf gradient, NewFloats(n, 0.01));
    ASSIGN_OR_RETURN(const kernels::Buf narrow, New(n, 0.0));
    const kernels::Buf written = dtype_ == kernels::DType::kF32 ? kernels::Buf{} : narrow;
    const kernels::AdamWStep step{
        .learning_rate = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
    const double bytes =
        28.0 +
        (dtype_ == kernels::DType::kF32 ? 0.0 : static_cast<double>(kernels::DTypeBytes(dtype_)));
    return Time("AdamW, all parameters", {.bytes = bytes * static_cast<double>(n)},
                [&] { device_->AdamWUpdate(weights, first, second, gradient, written, step); });
  }

  // Encodes a whole contribution, with the residual of the last one.
  absl::Status TimeEncodings() {
    const int64_t n = shapes_.parameters;
    ASSIGN_OR_RETURN(const kernels::Buf gradient, NewFloats(n, 0.01));
    ASSIGN_OR_RETURN(const kernels::Buf residual, NewFloats(n, 1e-4));
    ASSIGN_OR_RETURN(const kernels::Buf encoded, New(2 * n, kernels::DType::kU8, 0.0));
    for (params::Encoding encoding : {params::Encoding::kBf16, params::Encoding::kFp16,
                                      params::Encoding::kInt8, params::Encoding::kInt4}) {
      const auto bytes = static_cast<double>(params::EncodedBytes(encoding, n));
      const auto elements = static_cast<double>(n);
      const std::string name(params::EncodingName(encoding));
      RETURN_IF_ERROR(Time("encode in " + name, {.bytes = 8.0 * elements + bytes}, [&] {
        device_->Encode(encoding, encoded.data, gradient, 1.0f, residual, {.key = 1, .stream = 2},
                        kernels::StreamKind::kCompute);
      }));
      RETURN_IF_ERROR(
          Time("residual of " + name, {.bytes = 12.0 * elements + bytes}, {residual}, [&] {
            device_->UpdateResidual(encoding, residual, gradient, 1.0f, encoded.data, 1.0f,
                                    kernels::StreamKind::kCompute);
          }));
    }
    return absl::OkStatus();
  }

  // Times the path of gradients and weights to and from the host. The bus limits it, so its share
  // of the ceiling says how much slower the bus is than a copy on the device.
  absl::Status TimeHostCopies() {
    const int64_t bytes = shapes_.host_copy_bytes;
    ASSIGN_OR_RETURN(const kernels::Buf device_copy, NewFloats(bytes / 4, 0.5));
    ASSIGN_OR_RETURN(void* host, device_->AllocateHost(bytes));
    const Work work{.bytes = static_cast<double>(bytes)};
    absl::Status status = Time("copy to the host", work, [&] {
      device_->Copy(host, device_copy.data, bytes, kernels::StreamKind::kCompute);
    });
    status.Update(Time("copy from the host", work, [&] {
      device_->Copy(device_copy.data, host, bytes, kernels::StreamKind::kCompute);
    }));
    device_->ReleaseHost(host);
    return status;
  }

  kernels::Device* const device_;
  const kernels::DType dtype_;
  const OperationShapes shapes_;
  const int64_t rows_;
  const int64_t width_;
  OperationTimer timer_;
  const OperationReports& reports_;
  kernels::Buf pattern_;
  std::vector<void*> memory_;
};

}  // namespace

absl::Status BenchAttention(kernels::Device* device, const OperationShapes& shapes, int repeats,
                            const std::string& name_suffix, const OperationReports& reports) {
  return OperationBench(device, shapes, repeats, reports).RunAttention(name_suffix);
}

OperationShapes SmallOperationShapes(int64_t batch) {
  return {.batch = batch,
          .tokens = 16,
          .heads = 2,
          .head_width = 8,
          .vocabulary = 41,
          .head_rows = 48,
          .parameters = 700,
          .copy_bytes = 256,
          .product_side = 16,
          .host_copy_bytes = 256};
}

absl::Status BenchOperations(kernels::Device* device, const OperationShapes& shapes, int repeats,
                             const OperationReports& reports) {
  return OperationBench(device, shapes, repeats, reports).Run();
}

}  // namespace lodestar
