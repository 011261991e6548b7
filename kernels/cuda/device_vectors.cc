// SPDX-License-Identifier: Apache-2.0

// Implements CudaDevice's operations on vectors: copies, casts, sums, wire encodings, activations,
// dropout and optimizers.
#include "kernels/buffer_checks.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/codec.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/topk_codec.h"
#include "kernels/vectors/optimizer_factors.h"

namespace lodestar::cuda {

void CudaDevice::Copy(void* destination, const void* source, size_t bytes,
                      kernels::StreamKind stream) {
  if (bytes == 0) return;
  Check(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, On(stream)),
        "cudaMemcpyAsync");
}

void CudaDevice::Fill(kernels::Buf y, double value) {
  const auto fill = [&]<typename T>() {
    Check(cuda::Fill(y.as<T>(), value, y.num_elements, Compute()), "Fill");
  };
  if (y.dtype == kernels::DType::kI32) {
    fill.operator()<int32_t>();
  } else if (y.dtype == kernels::DType::kU8) {
    fill.operator()<uint8_t>();
  } else {
    WithFloatingType(y.dtype, fill);
  }
}

void CudaDevice::Cast(kernels::Buf y, kernels::Buf x, double scale, kernels::StreamKind stream) {
  kernels::CheckBuf(y, y.dtype, x.num_elements);
  WithFloatingType(y.dtype, [&]<typename To>() {
    WithFloatingType(x.dtype, [&]<typename From>() {
      Check(cuda::Cast(y.as<To>(), x.as<const From>(), scale, x.num_elements, On(stream)), "Cast");
    });
  });
}

void CudaDevice::AddScaled(kernels::Buf y, kernels::Buf x, double a) {
  kernels::CheckBuf(y, kernels::DType::kF32, x.num_elements);
  kernels::CheckBuf(x, kernels::DType::kF32, x.num_elements);
  Check(cuda::AddScaled(y.as<float>(), x.as<const float>(), a, x.num_elements, Compute()),
        "AddScaled");
}

void CudaDevice::Subtract(kernels::Buf z, kernels::Buf x, kernels::Buf y) {
  for (const kernels::Buf& buf : {x, y, z})
    kernels::CheckBuf(buf, kernels::DType::kF32, z.num_elements);
  Check(cuda::Subtract(z.as<float>(), x.as<const float>(), y.as<const float>(), z.num_elements,
                       Compute()),
        "Subtract");
}

void CudaDevice::SumOfSquares(kernels::Buf sum, kernels::Buf x) {
  kernels::CheckBuf(sum, kernels::DType::kF64, 1);
  kernels::CheckBuf(x, kernels::DType::kF32, x.num_elements);
  void* scratch = Scratch(SumOfSquaresWorkspaceBytes(x.num_elements));
  if (scratch == nullptr) return;
  Check(
      cuda::SumOfSquares(sum.as<double>(), x.as<const float>(), x.num_elements, scratch, Compute()),
      "SumOfSquares");
}

void CudaDevice::Encode(params::Encoding encoding, void* encoded, kernels::Buf values, float scale,
                        kernels::Buf residual, const kernels::Rounding& rounding,
                        kernels::StreamKind stream) {
  static_assert(kInt8BlockElements == params::kInt8Block &&
                kInt4BlockElements == params::kInt4Block);
  static_assert(kTopKBlockElements == params::kTopKBlock && kMostKept == params::kMaxTopK);
  kernels::CheckEncoding(encoding, encoded, values);
  kernels::CheckOptionalBuf(residual, kernels::DType::kF32, values.num_elements);
  const CodecInput input = {values.as<const float>(), scale, residual.as<const float>(),
                            values.num_elements};
  switch (encoding.kind()) {
    case params::Encoding::Kind::kFp32:
      return;
    case params::Encoding::Kind::kBf16:
      Check(EncodeBf16(static_cast<uint16_t*>(encoded), input, On(stream)), "EncodeBf16");
      return;
    case params::Encoding::Kind::kFp16:
      Check(EncodeFp16(static_cast<uint16_t*>(encoded), input, On(stream)), "EncodeFp16");
      return;
    case params::Encoding::Kind::kInt8:
      Check(EncodeInt8(encoded, input, rounding, On(stream)), "EncodeInt8");
      return;
    case params::Encoding::Kind::kInt4:
      Check(EncodeInt4(encoded, input, rounding, On(stream)), "EncodeInt4");
      return;
    case params::Encoding::Kind::kTopK2:
    case params::Encoding::Kind::kTopK4:
      Check(EncodeTopK(encoded, input, {encoding.topk(), encoding.topk_bits()}, On(stream)),
            "EncodeTopK");
      return;
  }
}

void CudaDevice::UpdateResidual(params::Encoding encoding, kernels::Buf residual,
                                kernels::Buf values, float scale, const void* encoded, float decay,
                                kernels::StreamKind stream) {
  kernels::CheckEncoding(encoding, encoded, values);
  kernels::CheckBuf(residual, kernels::DType::kF32, values.num_elements);
  const CodecInput input = {values.as<const float>(), scale, residual.as<const float>(),
                            values.num_elements};
  float* const lost = residual.as<float>();
  switch (encoding.kind()) {
    case params::Encoding::Kind::kFp32:
      return;
    case params::Encoding::Kind::kBf16:
      Check(LostInBf16(lost, input, static_cast<const uint16_t*>(encoded), decay, On(stream)),
            "LostInBf16");
      return;
    case params::Encoding::Kind::kFp16:
      Check(LostInFp16(lost, input, static_cast<const uint16_t*>(encoded), decay, On(stream)),
            "LostInFp16");
      return;
    case params::Encoding::Kind::kInt8:
      Check(LostInInt8(lost, input, encoded, decay, On(stream)), "LostInInt8");
      return;
    case params::Encoding::Kind::kInt4:
      Check(LostInInt4(lost, input, encoded, decay, On(stream)), "LostInInt4");
      return;
    case params::Encoding::Kind::kTopK2:
    case params::Encoding::Kind::kTopK4:
      Check(LostInTopK(lost, input, {encoding.topk(), encoding.topk_bits()}, encoded, decay,
                       On(stream)),
            "LostInTopK");
      return;
  }
}

void CudaDevice::Activate(kernels::Buf y, kernels::Buf x, kernels::Activation activation) {
  kernels::CheckBuf(x, compute_, x.num_elements);
  kernels::CheckBuf(y, compute_, x.num_elements);
  WithComputeType(compute_, [&]<typename T>() {
    Check(cuda::Activate(y.as<T>(), x.as<const T>(), x.num_elements, activation, Compute()),
          "Activate");
  });
}

void CudaDevice::Dropout(kernels::Buf y, kernels::Buf x, const kernels::DropoutMask& mask) {
  kernels::CheckBuf(x, compute_, x.num_elements);
  kernels::CheckBuf(y, compute_, x.num_elements);
  WithComputeType(compute_, [&]<typename T>() {
    Check(cuda::Dropout(y.as<T>(), x.as<const T>(), x.num_elements, mask, Compute()), "Dropout");
  });
}

void CudaDevice::MomentumUpdate(kernels::Buf weights, kernels::Buf state, kernels::Buf gradient,
                                kernels::Buf narrow, const kernels::MomentumStep& step) {
  const int64_t n = gradient.num_elements;
  for (const kernels::Buf& buf : {weights, gradient})
    kernels::CheckBuf(buf, kernels::DType::kF32, n);
  kernels::CheckOptionalBuf(state, kernels::DType::kF32, n);
  kernels::CheckOptionalBuf(narrow, narrow.dtype, n);
  WithComputeType(narrow.dtype, [&]<typename Narrow>() {
    Check(cuda::Momentum(weights.as<float>(), state.as<float>(), gradient.as<const float>(),
                         narrow.as<Narrow>(), n, vectors::MomentumFactorsOf(step), Compute()),
          "Momentum");
  });
}

void CudaDevice::AdamWUpdate(kernels::Buf weights, kernels::Buf first_moment,
                             kernels::Buf second_moment, kernels::Buf gradient, kernels::Buf narrow,
                             const kernels::AdamWStep& step) {
  const int64_t n = gradient.num_elements;
  for (const kernels::Buf& buf : {weights, first_moment, second_moment, gradient}) {
    kernels::CheckBuf(buf, kernels::DType::kF32, n);
  }
  kernels::CheckOptionalBuf(narrow, narrow.dtype, n);
  WithComputeType(narrow.dtype, [&]<typename Narrow>() {
    Check(cuda::AdamW(weights.as<float>(), first_moment.as<float>(), second_moment.as<float>(),
                      gradient.as<const float>(), narrow.as<Narrow>(), n,
                      vectors::AdamWFactorsOf(step), Compute()),
          "AdamW");
  });
}

}  // namespace lodestar::cuda
