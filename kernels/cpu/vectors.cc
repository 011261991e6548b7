// SPDX-License-Identifier: Apache-2.0

// Implements vector operations: copies, casts, sums, wire encodings, dropout and optimizers.
#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/types/span.h"
#include "kernels/buffer_checks.h"
#include "kernels/codec/encoded_vectors.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/vectors/optimizer_step.h"

namespace lodestar::cpu {
namespace {

constexpr int64_t kSumBlock = 64 * 1024;

// A bf16 number. `bits` is the upper half of the bits of an f32.
struct Bf16 {
  uint16_t bits;

  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
  // Rounds to nearest even. A NaN always has a mantissa bit, so that it stays NaN.
  explicit Bf16(float value) {
    const uint32_t wide = std::bit_cast<uint32_t>(value);
    const bool is_nan = (wide & 0x7fffffffu) > 0x7f800000u;
    bits = is_nan ? static_cast<uint16_t>(wide >> 16 | 0x40u)
                  : static_cast<uint16_t>((wide + 0x7fffu + (wide >> 16 & 1u)) >> 16);
  }
};
using F16 = _Float16;

template <typename To, typename From>
void CastRange(To* y, const From* x, double scale, int64_t n) {
  if constexpr (sizeof(To) == 8 || sizeof(From) == 8) {
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (sizeof(From) == 8) {
        y[i] = sizeof(To) == 8 ? static_cast<To>(x[i] * scale)
                               : static_cast<To>(static_cast<float>(x[i] * scale));
      } else {
        y[i] = static_cast<To>(static_cast<double>(static_cast<float>(x[i])) * scale);
      }
    }
  } else {
    const float factor = static_cast<float>(scale);
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<To>(static_cast<float>(x[i]) * factor);
  }
}

template <typename From>
void CastFrom(kernels::Buf y, const From* x, double scale, int64_t begin, int64_t n) {
  switch (y.dtype) {
    case kernels::DType::kF32:
      return CastRange(y.as<float>() + begin, x, scale, n);
    case kernels::DType::kF64:
      return CastRange(y.as<double>() + begin, x, scale, n);
    case kernels::DType::kBf16:
      return CastRange(y.as<Bf16>() + begin, x, scale, n);
    case kernels::DType::kF16:
      return CastRange(y.as<F16>() + begin, x, scale, n);
    default:
      LODESTAR_CHECK(false) << "cast to a type that is not floating";
  }
}

void CastSlice(kernels::Buf y, kernels::Buf x, double scale, int64_t begin, int64_t n) {
  switch (x.dtype) {
    case kernels::DType::kF32:
      return CastFrom(y, x.as<float>() + begin, scale, begin, n);
    case kernels::DType::kF64:
      return CastFrom(y, x.as<double>() + begin, scale, begin, n);
    case kernels::DType::kBf16:
      return CastFrom(y, x.as<Bf16>() + begin, scale, begin, n);
    case kernels::DType::kF16:
      return CastFrom(y, x.as<F16>() + begin, scale, begin, n);
    default:
      LODESTAR_CHECK(false) << "cast from a type that is not floating";
  }
}

template <typename T>
void FillRange(kernels::Buf y, T value) {
  std::fill_n(y.as<T>(), y.num_elements, value);
}

// Cost of encoding an element, in the unit of ForRanges()'s `cost`.
constexpr int64_t kEncodeCost = 2;

const float* FloatsAt(kernels::Buf buf, int64_t begin) {
  return buf ? buf.as<const float>() + begin : nullptr;
}

// Number of random words that DropoutWords() returns. Each word is for one element.
constexpr int64_t kWordsTogether = 4;
// Cost of dropout per element, in the unit of ForRanges()'s `cost`.
constexpr int64_t kDropoutCost = 16;

absl::Span<float> Part(const kernels::Buf& buf, int64_t begin, int64_t end) {
  return buf ? absl::MakeSpan(buf.as<float>() + begin, end - begin) : absl::Span<float>();
}

}  // namespace

void CpuDevice::Copy(void* destination, const void* source, size_t bytes, kernels::StreamKind) {
  if (bytes > 0) std::memcpy(destination, source, bytes);
}

void CpuDevice::Fill(kernels::Buf y, double value) {
  kernels::CheckBuf(y, y.dtype, y.num_elements);
  switch (y.dtype) {
    case kernels::DType::kF32:
      return FillRange(y, static_cast<float>(value));
    case kernels::DType::kF64:
      return FillRange(y, value);
    case kernels::DType::kBf16:
      return FillRange(y, Bf16(static_cast<float>(value)));
    case kernels::DType::kF16:
      return FillRange(y, static_cast<F16>(static_cast<float>(value)));
    case kernels::DType::kI32:
      return FillRange(y, static_cast<int32_t>(value));
    case kernels::DType::kU8:
      return FillRange(y, static_cast<uint8_t>(value));
  }
}

void CpuDevice::Cast(kernels::Buf y, kernels::Buf x, double scale, kernels::StreamKind) {
  kernels::CheckBuf(x, x.dtype, x.num_elements);
  kernels::CheckBuf(y, y.dtype, x.num_elements);
  if (x.dtype == kernels::DType::kF32 && y.dtype == kernels::DType::kF32) {
    ForRanges(x.num_elements, 16, x.num_elements, [&](int64_t begin, int64_t end, int64_t) {
      loops_.scale(y.as<float>() + begin, x.as<float>() + begin, static_cast<float>(scale),
                   end - begin);
    });
    return;
  }
  ForRanges(x.num_elements, 16, x.num_elements, [&](int64_t begin, int64_t end, int64_t) {
    CastSlice(y, x, scale, begin, end - begin);
  });
}

void CpuDevice::AddScaled(kernels::Buf y, kernels::Buf x, double a) {
  kernels::CheckBuf(x, kernels::DType::kF32, x.num_elements);
  kernels::CheckBuf(y, kernels::DType::kF32, x.num_elements);
  ForRanges(x.num_elements, 16, x.num_elements, [&](int64_t begin, int64_t end, int64_t) {
    loops_.add_scaled(y.as<float>() + begin, x.as<float>() + begin, static_cast<float>(a),
                      end - begin);
  });
}

void CpuDevice::Subtract(kernels::Buf z, kernels::Buf x, kernels::Buf y) {
  for (const kernels::Buf& buf : {x, y, z})
    kernels::CheckBuf(buf, kernels::DType::kF32, z.num_elements);
  ForRanges(z.num_elements, 16, z.num_elements, [&](int64_t begin, int64_t end, int64_t) {
    loops_.subtract(z.as<float>() + begin, x.as<float>() + begin, y.as<float>() + begin,
                    end - begin);
  });
}

// Adds up each block of kSumBlock elements, and then the sums of the blocks in order. So the result
// does not depend on the number of threads.
void CpuDevice::SumOfSquares(kernels::Buf sum, kernels::Buf x) {
  kernels::CheckBuf(sum, kernels::DType::kF64, 1);
  kernels::CheckBuf(x, kernels::DType::kF32, x.num_elements);
  const int64_t blocks = (x.num_elements + kSumBlock - 1) / kSumBlock;
  double* block_sums = reinterpret_cast<double*>(Scratch(2 * blocks));
  ForRanges(blocks, 1, x.num_elements, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kSumBlock;
      block_sums[block] =
          loops_.sum_of_squares(x.as<float>() + first, std::min(kSumBlock, x.num_elements - first));
    }
  });
  double total = 0.0;
  for (int64_t block = 0; block < blocks; ++block) total += block_sums[block];
  sum.as<double>()[0] = total;
}

// A thread encodes only whole blocks of the encoding. So the bytes do not depend on the number of
// threads.
void CpuDevice::Encode(params::Encoding encoding, void* encoded, kernels::Buf values, float scale,
                       kernels::Buf residual, const kernels::Rounding& rounding,
                       kernels::StreamKind) {
  kernels::CheckEncoding(encoding, encoded, values);
  kernels::CheckOptionalBuf(residual, kernels::DType::kF32, values.num_elements);
  const int64_t n = values.num_elements;
  ForRanges(n, params::kWholeBlocks, kEncodeCost * n, [&](int64_t begin, int64_t end, int64_t) {
    kernels::Rounding from_begin = rounding;
    from_begin.first_element += begin;
    codec::EncodeWithResidual(
        encoding, FloatsAt(values, begin), scale, FloatsAt(residual, begin), end - begin,
        from_begin, static_cast<std::byte*>(encoded) + params::EncodedBytes(encoding, begin));
  });
}

void CpuDevice::UpdateResidual(params::Encoding encoding, kernels::Buf residual,
                               kernels::Buf values, float scale, const void* encoded, float decay,
                               kernels::StreamKind) {
  kernels::CheckEncoding(encoding, encoded, values);
  kernels::CheckBuf(residual, kernels::DType::kF32, values.num_elements);
  const int64_t n = values.num_elements;
  ForRanges(n, params::kWholeBlocks, kEncodeCost * n, [&](int64_t begin, int64_t end, int64_t) {
    lodestar::codec::UpdateResidual(
        encoding, FloatsAt(values, begin), scale,
        static_cast<const std::byte*>(encoded) + params::EncodedBytes(encoding, begin), end - begin,
        decay, residual.as<float>() + begin);
  });
}

void CpuDevice::EncodeAndUpdate(params::Encoding encoding, void* encoded,
                                kernels::Buf next_residual, kernels::Buf values, float scale,
                                kernels::Buf residual, const kernels::Rounding& rounding,
                                float decay, kernels::StreamKind) {
  kernels::CheckEncoding(encoding, encoded, values);
  const int64_t n = values.num_elements;
  for (const kernels::Buf& buf : {residual, next_residual})
    kernels::CheckBuf(buf, kernels::DType::kF32, n);
  ForRanges(n, params::kWholeBlocks, kEncodeCost * n, [&](int64_t begin, int64_t end, int64_t) {
    kernels::Rounding from_begin = rounding;
    from_begin.first_element += begin;
    lodestar::codec::EncodeAndUpdate(
        encoding, FloatsAt(values, begin), scale, FloatsAt(residual, begin), end - begin,
        from_begin, decay, static_cast<std::byte*>(encoded) + params::EncodedBytes(encoding, begin),
        next_residual.as<float>() + begin);
  });
}

void CpuDevice::Dropout(kernels::Buf y, kernels::Buf x, const kernels::DropoutMask& mask) {
  const int64_t n = x.num_elements;
  LODESTAR_CHECK(mask.rate >= 0.0 && mask.rate < 1.0) << "rate=" << mask.rate;
  LODESTAR_CHECK(mask.first_element >= 0);
  kernels::CheckBuf(x, kernels::DType::kF32, n);
  kernels::CheckBuf(y, kernels::DType::kF32, n);
  const uint32_t threshold = kernels::DropoutThreshold(mask.rate);
  const float scale = static_cast<float>(kernels::DropoutScale(mask.rate));
  ForRanges(n, 16, kDropoutCost * n, [&](int64_t begin, int64_t end, int64_t) {
    int64_t i = begin;
    while (i < end) {
      const int64_t element = mask.first_element + i;
      const PhiloxWords words = kernels::DropoutWords(mask, element / kWordsTogether);
      for (int64_t word = element % kWordsTogether; word < kWordsTogether && i < end; ++word, ++i) {
        y.as<float>()[i] = words.word[word] >= threshold ? x.as<float>()[i] * scale : 0.0f;
      }
    }
  });
}

void CpuDevice::MomentumUpdate(kernels::Buf weights, kernels::Buf state, kernels::Buf gradient,
                               kernels::Buf narrow, const kernels::MomentumStep& step) {
  const int64_t n = gradient.num_elements;
  for (const kernels::Buf& buf : {weights, gradient})
    kernels::CheckBuf(buf, kernels::DType::kF32, n);
  kernels::CheckOptionalBuf(state, kernels::DType::kF32, n);
  ForRanges(n, 16, n, [&](int64_t begin, int64_t end, int64_t) {
    const absl::Span<float> w = Part(weights, begin, end);
    vectors::SgdMomentumStep(w, w, Part(state, begin, end), Part(gradient, begin, end), step);
  });
  if (narrow) Cast(narrow, weights.Slice(0, n), 1.0, kernels::StreamKind::kCompute);
}

void CpuDevice::AdamWUpdate(kernels::Buf weights, kernels::Buf first_moment,
                            kernels::Buf second_moment, kernels::Buf gradient, kernels::Buf narrow,
                            const kernels::AdamWStep& step) {
  const int64_t n = gradient.num_elements;
  for (const kernels::Buf& buf : {weights, first_moment, second_moment, gradient}) {
    kernels::CheckBuf(buf, kernels::DType::kF32, n);
  }
  ForRanges(n, 16, n, [&](int64_t begin, int64_t end, int64_t) {
    const absl::Span<float> w = Part(weights, begin, end);
    vectors::AdamWStepCpu(w, w, Part(first_moment, begin, end), Part(second_moment, begin, end),
                          Part(gradient, begin, end), step);
  });
  if (narrow) Cast(narrow, weights.Slice(0, n), 1.0, kernels::StreamKind::kCompute);
}

}  // namespace lodestar::cpu
