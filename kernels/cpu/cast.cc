// Filling and conversion between element types.
#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/buffer_checks.h"
#include "kernels/cpu/cpu_device.h"

namespace lodestar {
namespace {

// bf16 as the upper half of an f32.
struct Bf16 {
  uint16_t bits;

  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
  // To nearest even; a NaN keeps a bit of its mantissa.
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
void CastFrom(Buf y, const From* x, double scale, int64_t begin, int64_t n) {
  switch (y.dtype) {
    case DType::kF32:
      return CastRange(y.as<float>() + begin, x, scale, n);
    case DType::kF64:
      return CastRange(y.as<double>() + begin, x, scale, n);
    case DType::kBf16:
      return CastRange(y.as<Bf16>() + begin, x, scale, n);
    case DType::kF16:
      return CastRange(y.as<F16>() + begin, x, scale, n);
    default:
      LODESTAR_CHECK(false) << "cast to a type that is not floating";
  }
}

void CastSlice(Buf y, Buf x, double scale, int64_t begin, int64_t n) {
  switch (x.dtype) {
    case DType::kF32:
      return CastFrom(y, x.as<float>() + begin, scale, begin, n);
    case DType::kF64:
      return CastFrom(y, x.as<double>() + begin, scale, begin, n);
    case DType::kBf16:
      return CastFrom(y, x.as<Bf16>() + begin, scale, begin, n);
    case DType::kF16:
      return CastFrom(y, x.as<F16>() + begin, scale, begin, n);
    default:
      LODESTAR_CHECK(false) << "cast from a type that is not floating";
  }
}

template <typename T>
void FillRange(Buf y, T value) {
  std::fill_n(y.as<T>(), y.num_elements, value);
}

}  // namespace

void CpuDevice::Fill(Buf y, double value) {
  CheckBuf(y, y.dtype, y.num_elements);
  switch (y.dtype) {
    case DType::kF32:
      return FillRange(y, static_cast<float>(value));
    case DType::kF64:
      return FillRange(y, value);
    case DType::kBf16:
      return FillRange(y, Bf16(static_cast<float>(value)));
    case DType::kF16:
      return FillRange(y, static_cast<F16>(static_cast<float>(value)));
    case DType::kI32:
      return FillRange(y, static_cast<int32_t>(value));
    case DType::kU8:
      return FillRange(y, static_cast<uint8_t>(value));
  }
}

void CpuDevice::Cast(Buf y, Buf x, double scale, StreamKind) {
  CheckBuf(x, x.dtype, x.num_elements);
  CheckBuf(y, y.dtype, x.num_elements);
  if (x.dtype == DType::kF32 && y.dtype == DType::kF32) {
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

}  // namespace lodestar
