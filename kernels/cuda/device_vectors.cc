// Vectors: copies, casts, sums, wire encodings, activations, dropout and optimizers.
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

void CudaDevice::Copy(void* destination, const void* source, size_t bytes, StreamKind stream) {
  if (bytes == 0) return;
  Check(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, On(stream)),
        "cudaMemcpyAsync");
}

void CudaDevice::Fill(Buf y, double value) {
  const auto fill = [&]<typename T>() {
    Check(cuda::Fill(y.as<T>(), value, y.num_elements, Compute()), "Fill");
  };
  if (y.dtype == DType::kI32) {
    fill.operator()<int32_t>();
  } else if (y.dtype == DType::kU8) {
    fill.operator()<uint8_t>();
  } else {
    WithFloatingType(y.dtype, fill);
  }
}

void CudaDevice::Cast(Buf y, Buf x, double scale, StreamKind stream) {
  CheckBuf(y, y.dtype, x.num_elements);
  WithFloatingType(y.dtype, [&]<typename To>() {
    WithFloatingType(x.dtype, [&]<typename From>() {
      Check(cuda::Cast(y.as<To>(), x.as<const From>(), scale, x.num_elements, On(stream)), "Cast");
    });
  });
}

void CudaDevice::AddScaled(Buf y, Buf x, double a) {
  CheckBuf(y, DType::kF32, x.num_elements);
  CheckBuf(x, DType::kF32, x.num_elements);
  Check(cuda::AddScaled(y.as<float>(), x.as<const float>(), a, x.num_elements, Compute()),
        "AddScaled");
}

void CudaDevice::Subtract(Buf z, Buf x, Buf y) {
  for (const Buf& buf : {x, y, z}) CheckBuf(buf, DType::kF32, z.num_elements);
  Check(cuda::Subtract(z.as<float>(), x.as<const float>(), y.as<const float>(), z.num_elements,
                       Compute()),
        "Subtract");
}

void CudaDevice::SumOfSquares(Buf sum, Buf x) {
  CheckBuf(sum, DType::kF64, 1);
  CheckBuf(x, DType::kF32, x.num_elements);
  void* scratch = Scratch(SumOfSquaresWorkspaceBytes(x.num_elements));
  if (scratch == nullptr) return;
  Check(
      cuda::SumOfSquares(sum.as<double>(), x.as<const float>(), x.num_elements, scratch, Compute()),
      "SumOfSquares");
}

void CudaDevice::Encode(Encoding encoding, void* encoded, Buf values, float scale, Buf residual,
                        const Rounding& rounding, StreamKind stream) {
  static_assert(kInt8BlockElements == kInt8Block && kInt4BlockElements == kInt4Block);
  static_assert(kTopKBlockElements == kTopKBlock && kMostKept == kMaxTopK);
  CheckEncoding(encoding, encoded, values);
  CheckOptionalBuf(residual, DType::kF32, values.num_elements);
  const CodecInput input = {values.as<const float>(), scale, residual.as<const float>(),
                            values.num_elements};
  switch (encoding.kind()) {
    case Encoding::Kind::kFp32:
      return;
    case Encoding::Kind::kBf16:
      Check(EncodeBf16(static_cast<uint16_t*>(encoded), input, On(stream)), "EncodeBf16");
      return;
    case Encoding::Kind::kFp16:
      Check(EncodeFp16(static_cast<uint16_t*>(encoded), input, On(stream)), "EncodeFp16");
      return;
    case Encoding::Kind::kInt8:
      Check(EncodeInt8(encoded, input, rounding, On(stream)), "EncodeInt8");
      return;
    case Encoding::Kind::kInt4:
      Check(EncodeInt4(encoded, input, rounding, On(stream)), "EncodeInt4");
      return;
    case Encoding::Kind::kTopK2:
    case Encoding::Kind::kTopK4:
      Check(EncodeTopK(encoded, input, {encoding.topk(), encoding.topk_bits()}, On(stream)),
            "EncodeTopK");
      return;
  }
}

void CudaDevice::UpdateResidual(Encoding encoding, Buf residual, Buf values, float scale,
                                const void* encoded, float decay, StreamKind stream) {
  CheckEncoding(encoding, encoded, values);
  CheckBuf(residual, DType::kF32, values.num_elements);
  const CodecInput input = {values.as<const float>(), scale, residual.as<const float>(),
                            values.num_elements};
  float* const lost = residual.as<float>();
  switch (encoding.kind()) {
    case Encoding::Kind::kFp32:
      return;
    case Encoding::Kind::kBf16:
      Check(LostInBf16(lost, input, static_cast<const uint16_t*>(encoded), decay, On(stream)),
            "LostInBf16");
      return;
    case Encoding::Kind::kFp16:
      Check(LostInFp16(lost, input, static_cast<const uint16_t*>(encoded), decay, On(stream)),
            "LostInFp16");
      return;
    case Encoding::Kind::kInt8:
      Check(LostInInt8(lost, input, encoded, decay, On(stream)), "LostInInt8");
      return;
    case Encoding::Kind::kInt4:
      Check(LostInInt4(lost, input, encoded, decay, On(stream)), "LostInInt4");
      return;
    case Encoding::Kind::kTopK2:
    case Encoding::Kind::kTopK4:
      Check(LostInTopK(lost, input, {encoding.topk(), encoding.topk_bits()}, encoded, decay,
                       On(stream)),
            "LostInTopK");
      return;
  }
}

void CudaDevice::Activate(Buf y, Buf x, Activation activation) {
  CheckBuf(x, compute_, x.num_elements);
  CheckBuf(y, compute_, x.num_elements);
  WithComputeType(compute_, [&]<typename T>() {
    Check(cuda::Activate(y.as<T>(), x.as<const T>(), x.num_elements, activation, Compute()),
          "Activate");
  });
}

void CudaDevice::Dropout(Buf y, Buf x, const DropoutMask& mask) {
  CheckBuf(x, compute_, x.num_elements);
  CheckBuf(y, compute_, x.num_elements);
  WithComputeType(compute_, [&]<typename T>() {
    Check(cuda::Dropout(y.as<T>(), x.as<const T>(), x.num_elements, mask, Compute()), "Dropout");
  });
}

void CudaDevice::MomentumUpdate(Buf weights, Buf state, Buf gradient, Buf narrow,
                                const MomentumStep& step) {
  const int64_t n = gradient.num_elements;
  for (const Buf& buf : {weights, gradient}) CheckBuf(buf, DType::kF32, n);
  CheckOptionalBuf(state, DType::kF32, n);
  CheckOptionalBuf(narrow, narrow.dtype, n);
  WithComputeType(narrow.dtype, [&]<typename Narrow>() {
    Check(cuda::Momentum(weights.as<float>(), state.as<float>(), gradient.as<const float>(),
                         narrow.as<Narrow>(), n, MomentumFactorsOf(step), Compute()),
          "Momentum");
  });
}

void CudaDevice::AdamWUpdate(Buf weights, Buf first_moment, Buf second_moment, Buf gradient,
                             Buf narrow, const AdamWStep& step) {
  const int64_t n = gradient.num_elements;
  for (const Buf& buf : {weights, first_moment, second_moment, gradient}) {
    CheckBuf(buf, DType::kF32, n);
  }
  CheckOptionalBuf(narrow, narrow.dtype, n);
  WithComputeType(narrow.dtype, [&]<typename Narrow>() {
    Check(cuda::AdamW(weights.as<float>(), first_moment.as<float>(), second_moment.as<float>(),
                      gradient.as<const float>(), narrow.as<Narrow>(), n, AdamWFactorsOf(step),
                      Compute()),
          "AdamW");
  });
}

}  // namespace lodestar::cuda
