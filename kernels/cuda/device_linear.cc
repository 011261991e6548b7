// SPDX-License-Identifier: Apache-2.0

// Implements CudaDevice's matrix products, fully connected layers and normalisation.
#include "absl/strings/str_cat.h"
#include "kernels/buffer_checks.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/reduce.h"

namespace lodestar::cuda {
namespace {

const char* NameOf(kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kNone:
      return "";
    case kernels::Activation::kRelu:
      return ", ReLU";
    case kernels::Activation::kGeluTanh:
      return ", GELU";
  }
  return "";
}

// Returns true if a GELU that is fused may have an approximate tanh. NVIDIA does not say how exact
// the GELU of its epilogues is. In bf16 results are rounded to 2^-8, which is more than the error
// of an approximate tanh. In fp32 that error would be thousands of units in the last place.
bool IsExactWhenFused(kernels::Activation activation, kernels::DType compute) {
  return activation != kernels::Activation::kGeluTanh || compute == kernels::DType::kBf16;
}

const char* NameOf(kernels::WeightOrder order) {
  return order == kernels::WeightOrder::kInOut ? ", in x out" : "";
}

}  // namespace

void CudaDevice::Multiply(const MatMulCall& call) {
  const kernels::MatMulShape& s = call.shape;
  if (s.m == 0 || s.n == 0 || s.batch == 0) return;
  if (s.k > 0) {
    matmul_->Run(call, is_recording_, Compute());
    return;
  }
  if (call.accumulate == kernels::Accumulate::kAdd) return;
  const size_t bytes = kernels::DTypeBytes(call.c.dtype);
  for (int64_t i = 0; i < s.batch; ++i) {
    Check(cudaMemset2DAsync(call.c.as<char>() + i * s.stride_c * bytes,
                            (s.ldc != 0 ? s.ldc : s.n) * bytes, 0, s.n * bytes, s.m, Compute()),
          "cudaMemset2DAsync");
  }
}

void CudaDevice::MatMul(const kernels::MatMulShape& shape, kernels::Buf c, kernels::Buf a,
                        kernels::Buf b, kernels::Accumulate accumulate) {
  kernels::CheckMatMul(shape, c, a, b, compute_);
  Multiply({.shape = shape, .c = c, .a = a, .b = b, .accumulate = accumulate});
}

void CudaDevice::LinearForward(kernels::Buf y, kernels::Buf pre_activation, kernels::Buf x,
                               kernels::Buf w, kernels::Buf bias, int64_t rows, int64_t in,
                               int64_t out, kernels::Activation activation,
                               kernels::WeightOrder order) {
  kernels::CheckBuf(y, compute_, rows * out);
  kernels::CheckOptionalBuf(pre_activation, compute_, rows * out);
  kernels::CheckBuf(x, compute_, rows * in);
  kernels::CheckBuf(w, compute_, out * in);
  kernels::CheckOptionalBuf(bias, compute_, out);
  const kernels::MatMulShape shape{
      .transpose_b = order == kernels::WeightOrder::kOutIn, .m = rows, .n = out, .k = in};
  const bool keeps = pre_activation && activation != kernels::Activation::kNone;
  const auto separate = [&] {
    Multiply({.shape = shape, .c = y, .a = x, .b = w});
    if (!bias && activation == kernels::Activation::kNone) return;
    WithComputeType(compute_, [&]<typename T>() {
      Check(BiasActivation(y.as<T>(), keeps ? pre_activation.as<T>() : nullptr, bias.as<const T>(),
                           rows, out, activation, Compute()),
            "BiasActivation");
    });
  };
  const MatMulCall call{.shape = shape,
                        .c = y,
                        .a = x,
                        .b = w,
                        .bias = bias.data,
                        .pre_activation = keeps ? pre_activation.data : nullptr,
                        .activation = activation};
  const bool is_plain = !bias && activation == kernels::Activation::kNone;
  if (is_plain || !IsExactWhenFused(activation, compute_) || rows == 0 || in == 0 || out == 0 ||
      !matmul_->Supports(call)) {
    separate();
    return;
  }
  fusion_.RunFaster(
      absl::StrCat("forward ", rows, " x ", in, " x ", out, bias ? ", bias" : "",
                   NameOf(activation), keeps ? " kept" : "", NameOf(order)),
      is_recording_, Compute(), [&] { return matmul_->TryRun(call, is_recording_, Compute()); },
      separate);
}

void CudaDevice::LinearBackward(kernels::Buf dx, kernels::Buf dw, kernels::Buf db, kernels::Buf dy,
                                kernels::Buf pre_activation, kernels::Buf x, kernels::Buf w,
                                int64_t rows, int64_t in, int64_t out,
                                kernels::Activation activation, kernels::WeightOrder order,
                                kernels::Accumulate weights) {
  kernels::CheckOptionalBuf(dx, compute_, rows * in);
  kernels::CheckBuf(dw, kernels::DType::kF32, out * in);
  kernels::CheckOptionalBuf(db, kernels::DType::kF32, out);
  kernels::CheckBuf(dy, compute_, rows * out);
  kernels::CheckBuf(x, compute_, rows * in);
  kernels::CheckBuf(w, compute_, out * in);
  void* scratch = db ? Scratch(ColumnSumsWorkspaceBytes(rows, out)) : nullptr;
  if (db && scratch == nullptr) return;
  const bool adds = weights == kernels::Accumulate::kAdd;
  const bool has_activation = activation != kernels::Activation::kNone;
  if (has_activation) {
    kernels::CheckBuf(pre_activation, compute_, rows * out);
    WithComputeType(compute_, [&]<typename T>() {
      const cudaError_t error =
          db ? ActivationBackwardWithSums(dy.as<T>(), db.as<float>(), pre_activation.as<const T>(),
                                          rows, out, activation, adds, scratch, Compute())
             : ActivationBackward(dy.as<T>(), pre_activation.as<const T>(), rows * out, activation,
                                  Compute());
      Check(error, "ActivationBackward");
    });
  }
  const bool is_in_out = order == kernels::WeightOrder::kInOut;
  if (dx) {
    Multiply({.shape = {.transpose_b = is_in_out, .m = rows, .n = in, .k = out},
              .c = dx,
              .a = dy,
              .b = w});
  }

  const MatMulCall product{.shape = {.transpose_a = true,
                                     .m = is_in_out ? in : out,
                                     .n = is_in_out ? out : in,
                                     .k = rows},
                           .c = dw,
                           .a = is_in_out ? x : dy,
                           .b = is_in_out ? dy : x,
                           .accumulate = weights};
  if (!db || has_activation) {
    Multiply(product);
    return;
  }
  const auto separate = [&] {
    Multiply(product);
    WithComputeType(compute_, [&]<typename T>() {
      Check(ColumnSums(db.as<float>(), dy.as<const T>(), rows, out, adds, scratch, Compute()),
            "ColumnSums");
    });
  };
  MatMulCall fused = product;
  (is_in_out ? fused.column_sums : fused.row_sums) = db.data;
  // A call that adds to db is not fused, because cuBLASLt can set the sums for the bias but cannot
  // add to them.
  if (adds || rows == 0 || in == 0 || out == 0 || !matmul_->Supports(fused)) {
    separate();
    return;
  }
  fusion_.RunFaster(
      absl::StrCat("backward ", rows, " x ", in, " x ", out, ", bias", NameOf(order)),
      is_recording_, Compute(), [&] { return matmul_->TryRun(fused, is_recording_, Compute()); },
      separate);
}

void CudaDevice::LinearBackwardInput(kernels::Buf dx, kernels::Buf db, kernels::Buf dy,
                                     kernels::Buf pre_activation, kernels::Buf w, int64_t rows,
                                     int64_t in, int64_t out, kernels::Activation activation,
                                     kernels::WeightOrder order, kernels::Accumulate weights) {
  LODESTAR_CHECK(activation != kernels::Activation::kNone);
  for (const kernels::Buf& buf : {dx, pre_activation}) kernels::CheckBuf(buf, compute_, rows * in);
  kernels::CheckOptionalBuf(db, kernels::DType::kF32, in);
  kernels::CheckBuf(dy, compute_, rows * out);
  kernels::CheckBuf(w, compute_, out * in);
  void* scratch = db ? Scratch(ColumnSumsWorkspaceBytes(rows, in)) : nullptr;
  if (db && scratch == nullptr) return;
  const MatMulCall product{
      .shape = {.transpose_b = order == kernels::WeightOrder::kInOut, .m = rows, .n = in, .k = out},
      .c = dx,
      .a = dy,
      .b = w};
  // `separate` and `fused` may run several times to be measured. So they only leave partial sums in
  // scratch memory. Afterwards, the partial sums are added to db once, or db is set to their sum.
  const auto separate = [&] {
    Multiply(product);
    WithComputeType(compute_, [&]<typename T>() {
      const cudaError_t error =
          db ? ActivationBackwardWithSums(dx.as<T>(), /*column_sums=*/nullptr,
                                          pre_activation.as<const T>(), rows, in, activation,
                                          /*add=*/false, scratch, Compute())
             : ActivationBackward(dx.as<T>(), pre_activation.as<const T>(), rows * in, activation,
                                  Compute());
      Check(error, "ActivationBackward");
    });
  };
  MatMulCall call = product;
  call.pre_activation = pre_activation.data;
  call.activation = activation;
  call.is_gradient = true;
  // The epilogue's own sums for a bias would be in bf16, so our kernel computes the sums.
  const auto fused = [&] {
    const cublasStatus_t status = matmul_->TryRun(call, is_recording_, Compute());
    if (status != CUBLAS_STATUS_SUCCESS || !db) return status;
    WithComputeType(compute_, [&]<typename T>() {
      Check(ColumnSums(/*out=*/nullptr, dx.as<const T>(), rows, in, /*add=*/false, scratch,
                       Compute()),
            "ColumnSums");
    });
    return status;
  };
  if (!IsExactWhenFused(activation, compute_) || rows == 0 || in == 0 || out == 0 ||
      !matmul_->Supports(call)) {
    separate();
  } else {
    fusion_.RunFaster(absl::StrCat("backward ", rows, " x ", in, " x ", out, NameOf(activation),
                                   db ? ", bias" : "", NameOf(order)),
                      is_recording_, Compute(), fused, separate);
  }
  if (!db) return;
  Check(CombineColumnSums(db.as<float>(), rows, in, weights == kernels::Accumulate::kAdd, scratch,
                          Compute()),
        "CombineColumnSums");
}

void CudaDevice::ResidualNormForward(kernels::Buf y, kernels::Buf sum, kernels::Buf mean,
                                     kernels::Buf rstd, kernels::Buf a, kernels::Buf b,
                                     kernels::Buf gamma, kernels::Buf beta, int64_t rows,
                                     int64_t width) {
  for (const kernels::Buf& buf : {y, sum, a}) kernels::CheckBuf(buf, compute_, rows * width);
  kernels::CheckOptionalBuf(b, compute_, rows * width);
  for (const kernels::Buf& buf : {mean, rstd}) kernels::CheckBuf(buf, kernels::DType::kF32, rows);
  for (const kernels::Buf& buf : {gamma, beta}) kernels::CheckBuf(buf, compute_, width);
  WithComputeType(compute_, [&]<typename T>() {
    Check(cuda::ResidualNormForward(y.as<T>(), sum.as<T>(), mean.as<float>(), rstd.as<float>(),
                                    a.as<const T>(), b.as<const T>(), gamma.as<const T>(),
                                    beta.as<const T>(), rows, width, Compute()),
          "ResidualNormForward");
  });
}

void CudaDevice::NormBackward(kernels::Buf dx, kernels::Buf dgamma, kernels::Buf dbeta,
                              kernels::Buf dy, kernels::Buf sum, kernels::Buf mean,
                              kernels::Buf rstd, kernels::Buf gamma, int64_t rows, int64_t width,
                              kernels::Accumulate input, kernels::Accumulate weights) {
  for (const kernels::Buf& buf : {dx, dy, sum}) kernels::CheckBuf(buf, compute_, rows * width);
  for (const kernels::Buf& buf : {dgamma, dbeta})
    kernels::CheckBuf(buf, kernels::DType::kF32, width);
  for (const kernels::Buf& buf : {mean, rstd}) kernels::CheckBuf(buf, kernels::DType::kF32, rows);
  kernels::CheckBuf(gamma, compute_, width);
  void* scratch = Scratch(NormBackwardWorkspaceBytes(rows, width));
  if (scratch == nullptr) return;
  WithComputeType(compute_, [&]<typename T>() {
    Check(cuda::NormBackward(dx.as<T>(), dgamma.as<float>(), dbeta.as<float>(), dy.as<const T>(),
                             sum.as<const T>(), mean.as<const float>(), rstd.as<const float>(),
                             gamma.as<const T>(), rows, width, input == kernels::Accumulate::kAdd,
                             weights == kernels::Accumulate::kAdd, scratch, Compute()),
          "NormBackward");
  });
}

}  // namespace lodestar::cuda
