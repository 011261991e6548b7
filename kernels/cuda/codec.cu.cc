// Products and sums are rounded one by one, as on the host: a fused one would show in the bytes.
#include "kernels/cuda/codec.h"

#include <cuda_fp16.h>

#include "common/philox.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/vector_map.h"
#include "kernels/cuda/warp.h"

namespace lodestar::cuda {
namespace {

constexpr uint32_t kInfinity = 0x7f800000;  // bits of fp32
constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr uint32_t kNan = 0x7fc00000;

// In accesses of up to 16 bytes, from addresses that are multiples of theirs.
template <int kLanes>
__device__ inline void LoadFloats(float (&values)[kLanes], const float* from) {
  constexpr int kStep = kLanes < kVectorLanes<float> ? kLanes : kVectorLanes<float>;
#pragma unroll
  for (int k = 0; k < kLanes; k += kStep) {
    const auto lanes = *reinterpret_cast<const Lanes<float, kStep>*>(from + k);
#pragma unroll
    for (int lane = 0; lane < kStep; ++lane) values[k + lane] = lanes.at[lane];
  }
}

template <int kLanes>
__device__ inline void StoreFloats(float* to, const float (&values)[kLanes]) {
  constexpr int kStep = kLanes < kVectorLanes<float> ? kLanes : kVectorLanes<float>;
#pragma unroll
  for (int k = 0; k < kLanes; k += kStep) {
    Lanes<float, kStep> lanes;
#pragma unroll
    for (int lane = 0; lane < kStep; ++lane) lanes.at[lane] = values[k + lane];
    *reinterpret_cast<Lanes<float, kStep>*>(to + k) = lanes;
  }
}

// The elements [i, i + kLanes) of what is encoded.
template <int kLanes>
__device__ inline void LoadSum(float (&sum)[kLanes], const CodecInput& input, int64_t i) {
  LoadFloats(sum, input.values + i);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) sum[k] = __fmul_rn(sum[k], input.scale);
  if (input.residual == nullptr) return;
  float residual[kLanes];
  LoadFloats(residual, input.residual + i);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) sum[k] = __fadd_rn(sum[k], residual[k]);
}

// Both codes of 16 bits: nearest, ties to even; a finite value stays finite, NaN and Inf stay what
// they are.
struct Bf16Code {
  static __device__ inline uint16_t Of(float value) {
    constexpr uint32_t kLargest = 0x7f7f0000;  // that bf16 has
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
    constexpr uint32_t kLargest = 0x477fe000;  // 65504
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
  const uint16_t* codes;  // [n]

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    const auto lanes = *reinterpret_cast<const Lanes<uint16_t, kLanes>*>(codes + i);
    float sum[kLanes];
    LoadSum(sum, input, i);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) sum[k] = __fsub_rn(sum[k], Code::Decoded(lanes.at[k]));
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
cudaError_t Lost(float* lost, const CodecInput& input, const uint16_t* codes, cudaStream_t stream) {
  return MapVectors<kVectorLanes<uint16_t>>(
      LostOperation<Code>{lost, input, codes}, input.n,
      AreVectorsAligned(lost, codes, input.values, input.residual), stream);
}

constexpr int kWarps = 8;
constexpr int kLargestCode = 127;
// Of a block, in two halves: each lane has four consecutive elements of each, which share a block
// of random words where the noise begins at a multiple of four.
constexpr int kHalves = 2;
constexpr int kPerLane = 4;
constexpr int kBlock = static_cast<int>(kInt8BlockElements);
static_assert(kBlock == kHalves * kPerLane * kWarpSize);
constexpr int kBlockBytes = kBlock + static_cast<int>(sizeof(float));

// Of a block whose largest magnitude has these bits. 0: all of it is taken as zeros.
__device__ inline float ScaleFor(uint32_t largest_bits) {
  constexpr float kSmallestNormal = 0x1p-126f;
  if (largest_bits >= kInfinity) return __uint_as_float(kNan);
  const float largest = __uint_as_float(largest_bits);
  // The scale would be subnormal and its inverse infinite.
  if (largest < kLargestCode * kSmallestNormal) return 0.0f;
  const float scale = __fdiv_rn(largest, static_cast<float>(kLargestCode));
  const bool decodes_to_infinity =
      __float_as_uint(__fmul_rn(static_cast<float>(kLargestCode), scale)) >= kInfinity;
  return decodes_to_infinity ? __uint_as_float(__float_as_uint(scale) - 1) : scale;
}

// Rounds up with the probability of what rounding down would lose.
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
__device__ inline void WordsFor(uint32_t (&words)[kPerLane], const RoundingNoise& noise,
                                uint64_t element) {
  if constexpr (kSharesWords) {
    const PhiloxWords block = PhiloxAt(noise.key, noise.stream, element / 4);
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) words[k] = block.word[k];
  } else {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      words[k] = PhiloxAt(noise.key, noise.stream, (element + k) / 4).word[(element + k) % 4];
    }
  }
}

// One warp per block; encoded [blocks, kBlockBytes]. kVectors: values and residual are 16-byte
// aligned.
template <bool kSharesWords, bool kVectors>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    EncodeInt8Kernel(unsigned char* encoded, CodecInput input, RoundingNoise noise) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  const int64_t begin = block * kBlock;
  if (begin >= input.n) return;
  const int size = static_cast<int>(input.n - begin < kBlock ? input.n - begin : kBlock);
  float sum[kHalves][kPerLane] = {};
  uint32_t largest = 0;
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const int at = (half * kWarpSize + lane) * kPerLane;
    if (kVectors && at + kPerLane <= size) {
      LoadSum(sum[half], input, begin + at);
    } else {
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) {
        if (at + k >= size) continue;
        float one[1];
        LoadSum(one, input, begin + at + k);
        sum[half][k] = one[0];
      }
    }
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      largest = max(largest, __float_as_uint(sum[half][k]) & kMagnitude);
    }
  }
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, offset));
  }
  const float scale = ScaleFor(largest);
  const float inverse_scale = __fdiv_rn(1.0f, scale);
  unsigned char* to = encoded + block * kBlockBytes;
  if (lane == 0) *reinterpret_cast<float*>(to) = scale;
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const int at = (half * kWarpSize + lane) * kPerLane;
    if (at >= size) continue;
    uint32_t words[kPerLane];
    WordsFor<kSharesWords>(words, noise, static_cast<uint64_t>(noise.first_element + begin + at));
    // Neither 0 nor NaN.
    const bool has_scale = scale > 0.0f;
    Lanes<int8_t, kPerLane> codes;
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const int code = has_scale ? Quantized(sum[half][k], inverse_scale, words[k]) : 0;
      codes.at[k] = static_cast<int8_t>(code);
    }
    unsigned char* codes_at = to + sizeof(float) + at;
    if (kVectors && at + kPerLane <= size) {
      *reinterpret_cast<Lanes<int8_t, kPerLane>*>(codes_at) = codes;
    } else {
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) {
        if (at + k < size) codes_at[k] = static_cast<unsigned char>(codes.at[k]);
      }
    }
  }
}

template <bool kSharesWords, bool kVectors>
cudaError_t LaunchEncodeInt8(void* encoded, const CodecInput& input, const RoundingNoise& noise,
                             cudaStream_t stream) {
  const LaunchConfig config{
      .grid = dim3(static_cast<unsigned>(CeilDiv(input.n, int64_t{kWarps} * kBlock))),
      .block = dim3(kWarps * kWarpSize),
      .stream = stream};
  return Launch(EncodeInt8Kernel<kSharesWords, kVectors>, config,
                static_cast<unsigned char*>(encoded), input, noise);
}

// A group of elements never crosses a block.
struct LostInInt8Operation {
  float* lost;  // [n]
  CodecInput input;
  const unsigned char* encoded;  // [blocks, kBlockBytes]

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    const unsigned char* const block = encoded + i / kBlock * kBlockBytes;
    const float scale = *reinterpret_cast<const float*>(block);
    const auto codes =
        *reinterpret_cast<const Lanes<int8_t, kLanes>*>(block + sizeof(float) + i % kBlock);
    float sum[kLanes];
    LoadSum(sum, input, i);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      sum[k] = __fsub_rn(sum[k], __fmul_rn(static_cast<float>(codes.at[k]), scale));
    }
    StoreFloats(lost + i, sum);
  }
};

}  // namespace

cudaError_t EncodeBf16(uint16_t* codes, const CodecInput& input, cudaStream_t stream) {
  return Encode<Bf16Code>(codes, input, stream);
}

cudaError_t EncodeFp16(uint16_t* codes, const CodecInput& input, cudaStream_t stream) {
  return Encode<Fp16Code>(codes, input, stream);
}

cudaError_t EncodeInt8(void* encoded, const CodecInput& input, const RoundingNoise& noise,
                       cudaStream_t stream) {
  if (input.n == 0) return cudaSuccess;
  const bool shares_words = noise.first_element % 4 == 0;
  const bool aligned = AreVectorsAligned(input.values, input.residual);
  if (shares_words && aligned) return LaunchEncodeInt8<true, true>(encoded, input, noise, stream);
  if (shares_words) return LaunchEncodeInt8<true, false>(encoded, input, noise, stream);
  return LaunchEncodeInt8<false, false>(encoded, input, noise, stream);
}

cudaError_t LostInBf16(float* lost, const CodecInput& input, const uint16_t* codes,
                       cudaStream_t stream) {
  return Lost<Bf16Code>(lost, input, codes, stream);
}

cudaError_t LostInFp16(float* lost, const CodecInput& input, const uint16_t* codes,
                       cudaStream_t stream) {
  return Lost<Fp16Code>(lost, input, codes, stream);
}

cudaError_t LostInInt8(float* lost, const CodecInput& input, const void* encoded,
                       cudaStream_t stream) {
  return MapVectors<kPerLane>(
      LostInInt8Operation{lost, input, static_cast<const unsigned char*>(encoded)}, input.n,
      AreVectorsAligned(lost, input.values, input.residual), stream);
}

}  // namespace lodestar::cuda
