// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/codec.h"

#include <cuda_fp16.h>

#include "common/runtime/philox.h"
#include "kernels/cuda/codec_input.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/vector_map.h"
#include "kernels/cuda/warp.h"

namespace lodestar::cuda {
namespace {

constexpr uint32_t kInfinity = 0x7f800000;  // bits of an fp32 Inf
constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr uint32_t kNan = 0x7fc00000;

// Bf16Code and Fp16Code round to the nearest value, ties to even. A finite value stays finite. NaN
// and Inf stay NaN and Inf.
struct Bf16Code {
  static __device__ inline uint16_t Of(float value) {
    constexpr uint32_t kLargest = 0x7f7f0000;  // largest finite bf16
    const uint32_t bits = __float_as_uint(value);
    const uint32_t magnitude = bits & kMagnitude;
    const uint32_t rounded = magnitude + 0x7fff + ((magnitude >> 16) & 1);
    const uint32_t finite = rounded < kLargest ? rounded : kLargest;
    const uint32_t special = magnitude > kInfinity ? kNan : kInfinity;
    const uint32_t result = magnitude < kInfinity ? finite : special;
    return static_cast<uint16_t>((result | (bits & ~kMagnitude)) >> 16);
  }
  static __device__ inline float Decoded(uint16_t code) {
    return __uint_as_float(static_cast<uint32_t>(code) << 16);
  }
};

struct Fp16Code {
  static __device__ inline uint16_t Of(float value) {
    constexpr uint32_t kLargest = 0x477fe000;  // 65504, the largest finite fp16
    const uint32_t bits = __float_as_uint(value);
    const uint32_t magnitude = bits & kMagnitude;
    const uint32_t bounded = magnitude < kLargest ? magnitude : kLargest;
    const uint32_t finite = __half_as_ushort(__float2half_rn(__uint_as_float(bounded)));
    const uint32_t special = magnitude > kInfinity ? 0x7e00u : 0x7c00u;
    const uint32_t result = magnitude < kInfinity ? finite : special;
    return static_cast<uint16_t>(result | ((bits >> 16) & 0x8000));
  }
  static __device__ inline float Decoded(uint16_t code) {
    return __half2float(__ushort_as_half(code));
  }
};

template <typename Code>
struct EncodeOperation {
  uint16_t* codes;  // [n]
  CodecInput input;

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    float sum[kLanes];
    Lanes<uint16_t, kLanes> lanes;
    LoadSum(sum, input, i);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) lanes.at[k] = Code::Of(sum[k]);
    *reinterpret_cast<Lanes<uint16_t, kLanes>*>(codes + i) = lanes;
  }
};

template <typename Code>
struct LostOperation {
  float* lost;  // [n]
  CodecInput input;
  float decay;
  const uint16_t* codes;  // [n]

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    const auto lanes = *reinterpret_cast<const Lanes<uint16_t, kLanes>*>(codes + i);
    float sum[kLanes];
    LoadSum(sum, input, i);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      sum[k] = __fmul_rn(__fsub_rn(sum[k], Code::Decoded(lanes.at[k])), decay);
    }
    StoreFloats(lost + i, sum);
  }
};

template <typename Code>
cudaError_t Encode(uint16_t* codes, const CodecInput& input, cudaStream_t stream) {
  return MapVectors<kVectorLanes<uint16_t>>(EncodeOperation<Code>{codes, input}, input.n,
                                            AreVectorsAligned(codes, input.values, input.residual),
                                            stream);
}

template <typename Code>
cudaError_t Lost(float* lost, const CodecInput& input, const uint16_t* codes, float decay,
                 cudaStream_t stream) {
  return MapVectors<kVectorLanes<uint16_t>>(
      LostOperation<Code>{lost, input, decay, codes}, input.n,
      AreVectorsAligned(lost, codes, input.values, input.residual), stream);
}

constexpr int kWarps = 8;
// Number of consecutive elements that a lane handles in one step. If the index of the first is a
// multiple of four, one block of random words is enough for them.
constexpr int kPerLane = 4;
constexpr int kPerWarp = kPerLane * kWarpSize;
constexpr float kSmallestNormal = 0x1p-126f;

// Int8Format and Int4Format describe blocks [scale | codes]. ScaleOf() returns the scale of a block
// from its largest magnitude. Requires: the magnitude is finite, and its scale is not subnormal.
struct Int8Format {
  static constexpr int kBlock = static_cast<int>(kInt8BlockElements);
  static constexpr int kBlockBytes = static_cast<int>(Int8EncodedBytes(kBlock));
  static constexpr int kLargestCode = 127;
  using Scale = float;

  static __device__ inline float ScaleOf(float largest) {
    const float scale = __fdiv_rn(largest, static_cast<float>(kLargestCode));
    const bool decodes_to_infinity =
        __float_as_uint(__fmul_rn(static_cast<float>(kLargestCode), scale)) >= kInfinity;
    return decodes_to_infinity ? __uint_as_float(__float_as_uint(scale) - 1) : scale;
  }
  static __device__ inline Scale Stored(float scale) { return scale; }
  static __device__ inline float Loaded(Scale scale) { return scale; }

  // Stores the codes of elements [at, at + kPerLane) of the block. `at` must be a multiple of
  // kPerLane.
  static __device__ inline void StoreLane(unsigned char* codes_of_block, int at,
                                          const int (&codes)[kPerLane]) {
    Lanes<int8_t, kPerLane> lanes;
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) lanes.at[k] = static_cast<int8_t>(codes[k]);
    *reinterpret_cast<Lanes<int8_t, kPerLane>*>(codes_of_block + at) = lanes;
  }
  // Stores codes[0] to codes[count - 1].
  static __device__ inline void StoreSome(unsigned char* codes_of_block, int at,
                                          const int (&codes)[kPerLane], int count) {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      if (k < count) codes_of_block[at + k] = static_cast<unsigned char>(codes[k]);
    }
  }
  // Loads the codes of elements [at, at + kLanes). kLanes is 1 or kPerLane. If it is kPerLane, `at`
  // must be a multiple of kPerLane.
  template <int kLanes>
  static __device__ inline void Load(int (&codes)[kLanes], const unsigned char* codes_of_block,
                                     int at) {
    const auto lanes = *reinterpret_cast<const Lanes<int8_t, kLanes>*>(codes_of_block + at);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) codes[k] = lanes.at[k];
  }
};

struct Int4Format {
  static constexpr int kBlock = static_cast<int>(kInt4BlockElements);
  static constexpr int kBlockBytes = static_cast<int>(Int4EncodedBytes(kBlock));
  static constexpr int kLargestCode = 7;
  using Scale = uint16_t;

  // Returns the scale, rounded up to bf16.
  static __device__ inline float ScaleOf(float largest) {
    const float exact = __fdiv_rn(largest, static_cast<float>(kLargestCode));
    const uint32_t bits = (__float_as_uint(exact) + 0xffff) & 0xffff0000;
    const bool decodes_to_infinity = __float_as_uint(__fmul_rn(static_cast<float>(kLargestCode),
                                                               __uint_as_float(bits))) >= kInfinity;
    return __uint_as_float(decodes_to_infinity ? bits - 0x10000 : bits);
  }
  static __device__ inline Scale Stored(float scale) {
    return static_cast<uint16_t>(__float_as_uint(scale) >> 16);
  }
  static __device__ inline float Loaded(Scale scale) { return Bf16Code::Decoded(scale); }

  static __device__ inline unsigned char Packed(int low, int high) {
    return static_cast<unsigned char>((low & 0xf) | ((high & 0xf) << 4));
  }
  static __device__ inline void StoreLane(unsigned char* codes_of_block, int at,
                                          const int (&codes)[kPerLane]) {
    Lanes<unsigned char, kPerLane / 2> lanes;
#pragma unroll
    for (int k = 0; k < kPerLane / 2; ++k) lanes.at[k] = Packed(codes[2 * k], codes[2 * k + 1]);
    *reinterpret_cast<Lanes<unsigned char, kPerLane / 2>*>(codes_of_block + at / 2) = lanes;
  }
  // Stores codes[0] to codes[count - 1]. Requires: all later codes are 0. If `count` is odd, one of
  // them is in the last byte.
  static __device__ inline void StoreSome(unsigned char* codes_of_block, int at,
                                          const int (&codes)[kPerLane], int count) {
#pragma unroll
    for (int k = 0; k < kPerLane / 2; ++k) {
      if (2 * k < count) codes_of_block[at / 2 + k] = Packed(codes[2 * k], codes[2 * k + 1]);
    }
  }
  template <int kLanes>
  static __device__ inline void Load(int (&codes)[kLanes], const unsigned char* codes_of_block,
                                     int at) {
    constexpr int kBytes = (kLanes + 1) / 2;
    const auto lanes =
        *reinterpret_cast<const Lanes<unsigned char, kBytes>*>(codes_of_block + at / 2);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      // `at` may be odd if kLanes is 1.
      const int half = (lanes.at[k / 2] >> 4 * ((at + k) % 2)) & 0xf;
      codes[k] = (half ^ 8) - 8;
    }
  }
};

// Returns the scale of a block whose largest magnitude has the bits `largest_bits`. 0 means that
// all elements are encoded as zeros.
template <typename Format>
__device__ inline float ScaleFor(uint32_t largest_bits) {
  if (largest_bits >= kInfinity) return __uint_as_float(kNan);
  const float largest = __uint_as_float(largest_bits);
  // Returns 0 if the scale would be subnormal, because its inverse would be infinite.
  if (largest < Format::kLargestCode * kSmallestNormal) return 0.0f;
  return Format::ScaleOf(largest);
}

// Rounds the quotient up or down at random. The probability of rounding up is the fraction that
// rounding down would lose.
template <int kLargestCode>
__device__ inline int Quantized(float value, float inverse_scale, uint32_t word) {
  const float quotient = __fmul_rn(value, inverse_scale);
  const int toward_zero = static_cast<int>(quotient);
  const int down = toward_zero - (quotient < static_cast<float>(toward_zero) ? 1 : 0);
  const float lost = __fsub_rn(quotient, static_cast<float>(down));
  const float uniform = static_cast<float>(static_cast<int>(word >> 8)) * 0x1p-24f;
  const int rounded = down + (uniform < lost ? 1 : 0);
  const int bounded = rounded < kLargestCode ? rounded : kLargestCode;
  return bounded > -kLargestCode ? bounded : -kLargestCode;
}

template <bool kSharesWords>
__device__ inline void WordsFor(uint32_t (&words)[kPerLane], const kernels::Rounding& rounding,
                                uint64_t element) {
  if (rounding.kind == kernels::Rounding::Kind::kToNearest) {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) words[k] = kernels::kWordOfTheMiddle;
  } else if constexpr (kSharesWords) {
    const PhiloxWords block = PhiloxAt(rounding.key, rounding.stream, element / 4);
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) words[k] = block.word[k];
  } else {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      words[k] = PhiloxAt(rounding.key, rounding.stream, (element + k) / 4).word[(element + k) % 4];
    }
  }
}

// Each warp encodes one block of the encoding at a time, in steps of kPerWarp elements. `encoded`
// is [blocks, kBlockBytes].
// - kSharesWords: the four elements of a lane use the words of one block of random words.
// - kVectors: values and residual are 16-byte aligned.
template <typename Format, bool kSharesWords, bool kVectors>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    EncodeBlocksKernel(unsigned char* encoded, CodecInput input, kernels::Rounding rounding) {
  constexpr int kBlock = Format::kBlock;
  constexpr int kParts = kBlock / kPerWarp;
  static_assert(kBlock == kParts * kPerWarp);
  const int lane = threadIdx.x % kWarpSize;
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  const int64_t begin = block * kBlock;
  if (begin >= input.n) return;
  const int size = static_cast<int>(input.n - begin < kBlock ? input.n - begin : kBlock);
  float sum[kParts][kPerLane] = {};
  uint32_t largest = 0;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int at = (part * kWarpSize + lane) * kPerLane;
    if (kVectors && at + kPerLane <= size) {
      LoadSum(sum[part], input, begin + at);
    } else {
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) {
        if (at + k >= size) continue;
        float one[1];
        LoadSum(one, input, begin + at + k);
        sum[part][k] = one[0];
      }
    }
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      largest = max(largest, __float_as_uint(sum[part][k]) & kMagnitude);
    }
  }
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, offset));
  }
  const float scale = ScaleFor<Format>(largest);
  const float inverse_scale = __fdiv_rn(1.0f, scale);
  unsigned char* const to = encoded + block * Format::kBlockBytes;
  unsigned char* const codes_of_block = to + sizeof(typename Format::Scale);
  if (lane == 0) *reinterpret_cast<typename Format::Scale*>(to) = Format::Stored(scale);
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int at = (part * kWarpSize + lane) * kPerLane;
    if (at >= size) continue;
    uint32_t words[kPerLane];
    WordsFor<kSharesWords>(words, rounding,
                           static_cast<uint64_t>(rounding.first_element + begin + at));
    // False if the scale is 0 or NaN. In this case all codes are 0.
    const bool has_scale = scale > 0.0f;
    int codes[kPerLane];
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      codes[k] =
          has_scale ? Quantized<Format::kLargestCode>(sum[part][k], inverse_scale, words[k]) : 0;
    }
    if (kVectors && at + kPerLane <= size) {
      Format::StoreLane(codes_of_block, at, codes);
    } else {
      Format::StoreSome(codes_of_block, at, codes, size - at);
    }
  }
}

template <typename Format, bool kSharesWords, bool kVectors>
cudaError_t LaunchEncodeBlocks(void* encoded, const CodecInput& input,
                               const kernels::Rounding& rounding, cudaStream_t stream) {
  const LaunchConfig config{
      .grid = dim3(static_cast<unsigned>(CeilDiv(input.n, int64_t{kWarps} * Format::kBlock))),
      .block = dim3(kWarps * kWarpSize),
      .stream = stream};
  return Launch(EncodeBlocksKernel<Format, kSharesWords, kVectors>, config,
                static_cast<unsigned char*>(encoded), input, rounding);
}

template <typename Format>
cudaError_t EncodeBlocks(void* encoded, const CodecInput& input, const kernels::Rounding& rounding,
                         cudaStream_t stream) {
  if (input.n == 0) return cudaSuccess;
  const bool shares_words = rounding.first_element % 4 == 0;
  const bool aligned = AreVectorsAligned(input.values, input.residual);
  if (shares_words && aligned) {
    return LaunchEncodeBlocks<Format, true, true>(encoded, input, rounding, stream);
  }
  if (shares_words) {
    return LaunchEncodeBlocks<Format, true, false>(encoded, input, rounding, stream);
  }
  return LaunchEncodeBlocks<Format, false, false>(encoded, input, rounding, stream);
}

// Do(i) computes elements [i, i + kLanes) of `lost`. They must be in the same block of the
// encoding.
template <typename Format>
struct LostInBlocksOperation {
  float* lost;  // [n]
  CodecInput input;
  float decay;
  const unsigned char* encoded;  // [blocks, kBlockBytes]

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    using Scale = typename Format::Scale;
    const unsigned char* const block = encoded + i / Format::kBlock * Format::kBlockBytes;
    const float scale = Format::Loaded(*reinterpret_cast<const Scale*>(block));
    int codes[kLanes];
    Format::template Load<kLanes>(codes, block + sizeof(Scale),
                                  static_cast<int>(i % Format::kBlock));
    float sum[kLanes];
    LoadSum(sum, input, i);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      const float decoded = __fmul_rn(static_cast<float>(codes[k]), scale);
      sum[k] = __fmul_rn(__fsub_rn(sum[k], decoded), decay);
    }
    StoreFloats(lost + i, sum);
  }
};

template <typename Format>
cudaError_t LostInBlocks(float* lost, const CodecInput& input, const void* encoded, float decay,
                         cudaStream_t stream) {
  return MapVectors<kPerLane>(
      LostInBlocksOperation<Format>{lost, input, decay, static_cast<const unsigned char*>(encoded)},
      input.n, AreVectorsAligned(lost, input.values, input.residual), stream);
}

}  // namespace

cudaError_t EncodeBf16(uint16_t* codes, const CodecInput& input, cudaStream_t stream) {
  return Encode<Bf16Code>(codes, input, stream);
}

cudaError_t EncodeFp16(uint16_t* codes, const CodecInput& input, cudaStream_t stream) {
  return Encode<Fp16Code>(codes, input, stream);
}

cudaError_t EncodeInt8(void* encoded, const CodecInput& input, const kernels::Rounding& rounding,
                       cudaStream_t stream) {
  return EncodeBlocks<Int8Format>(encoded, input, rounding, stream);
}

cudaError_t EncodeInt4(void* encoded, const CodecInput& input, const kernels::Rounding& rounding,
                       cudaStream_t stream) {
  return EncodeBlocks<Int4Format>(encoded, input, rounding, stream);
}

cudaError_t LostInBf16(float* lost, const CodecInput& input, const uint16_t* codes, float decay,
                       cudaStream_t stream) {
  return Lost<Bf16Code>(lost, input, codes, decay, stream);
}

cudaError_t LostInFp16(float* lost, const CodecInput& input, const uint16_t* codes, float decay,
                       cudaStream_t stream) {
  return Lost<Fp16Code>(lost, input, codes, decay, stream);
}

cudaError_t LostInInt8(float* lost, const CodecInput& input, const void* encoded, float decay,
                       cudaStream_t stream) {
  return LostInBlocks<Int8Format>(lost, input, encoded, decay, stream);
}

cudaError_t LostInInt4(float* lost, const CodecInput& input, const void* encoded, float decay,
                       cudaStream_t stream) {
  return LostInBlocks<Int4Format>(lost, input, encoded, decay, stream);
}

}  // namespace lodestar::cuda
