// Products and sums are rounded one by one, as on the host: a fused one would show in the bytes.
#include "kernels/cuda/codec.h"

#include "common/philox.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/vector_map.h"
#include "kernels/cuda/warp.h"

namespace lodestar::cuda {
namespace {

constexpr uint32_t kInfinity = 0x7f800000;  // bits of fp32
constexpr uint32_t kMagnitude = 0x7fffffff;

// The elements [i, i + kLanes) of what is encoded.
template <int kLanes>
__device__ inline void LoadSum(float (&sum)[kLanes], const CodecInput& input, int64_t i) {
  Load(sum, input.values + i);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) sum[k] = __fmul_rn(sum[k], input.scale);
  if (input.residual == nullptr) return;
  float residual[kLanes];
  Load(residual, input.residual + i);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) sum[k] = __fadd_rn(sum[k], residual[k]);
}

template <int kLanes>
__device__ inline void StoreResidual(const CodecInput& input, int64_t i, const float (&sum)[kLanes],
                                     const float (&decoded)[kLanes]) {
  if (input.residual == nullptr) return;
  float lost[kLanes];
#pragma unroll
  for (int k = 0; k < kLanes; ++k) lost[k] = __fsub_rn(sum[k], decoded[k]);
  Store(input.residual + i, lost);
}

// Nearest, ties to even; a finite value stays finite, NaN and Inf stay what they are.
__device__ inline uint32_t Bf16Bits(float value) {
  constexpr uint32_t kLargest = 0x7f7f0000;  // that bf16 has
  const uint32_t bits = __float_as_uint(value);
  const uint32_t magnitude = bits & kMagnitude;
  const uint32_t rounded = magnitude + 0x7fff + ((magnitude >> 16) & 1);
  const uint32_t finite = rounded < kLargest ? rounded : kLargest;
  const uint32_t special = magnitude > kInfinity ? 0x7fc00000u : kInfinity;
  return ((magnitude < kInfinity ? finite : special) | (bits & ~kMagnitude)) >> 16;
}

struct EncodeBf16Operation {
  uint16_t* codes;
  CodecInput input;

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    float sum[kLanes];
    float decoded[kLanes];
    Lanes<uint16_t, kLanes> lanes;
    LoadSum(sum, input, i);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      const uint32_t bits = Bf16Bits(sum[k]);
      lanes.at[k] = static_cast<uint16_t>(bits);
      decoded[k] = __uint_as_float(bits << 16);
    }
    *reinterpret_cast<Lanes<uint16_t, kLanes>*>(codes + i) = lanes;
    StoreResidual(input, i, sum, decoded);
  }
};

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
  if (largest_bits >= kInfinity) return NAN;
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
__device__ inline void WordsFor(uint32_t (&words)[kPerLane], const CodecNoise& noise,
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

// One warp per block. kVectors: values and residual are 16-byte aligned.
template <bool kSharesWords, bool kVectors>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    EncodeInt8Kernel(unsigned char* encoded, CodecInput input, CodecNoise noise) {
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
    float decoded[kPerLane];
    Lanes<int8_t, kPerLane> codes;
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      // Neither 0 nor NaN.
      const bool has_scale = scale > 0.0f;
      const int code = has_scale ? Quantized(sum[half][k], inverse_scale, words[k]) : 0;
      codes.at[k] = static_cast<int8_t>(code);
      decoded[k] = __fmul_rn(static_cast<float>(code), scale);
    }
    unsigned char* codes_at = to + sizeof(float) + at;
    if (kVectors && at + kPerLane <= size) {
      *reinterpret_cast<Lanes<int8_t, kPerLane>*>(codes_at) = codes;
      StoreResidual(input, begin + at, sum[half], decoded);
    } else {
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) {
        if (at + k >= size) continue;
        codes_at[k] = static_cast<unsigned char>(codes.at[k]);
        StoreResidual(input, begin + at + k, {sum[half][k]}, {decoded[k]});
      }
    }
  }
}

template <bool kSharesWords, bool kVectors>
cudaError_t LaunchEncodeInt8(void* encoded, const CodecInput& input, const CodecNoise& noise,
                             cudaStream_t stream) {
  const LaunchConfig config{
      .grid = dim3(static_cast<unsigned>(CeilDiv(input.n, int64_t{kWarps} * kBlock))),
      .block = dim3(kWarps * kWarpSize),
      .stream = stream};
  return Launch(EncodeInt8Kernel<kSharesWords, kVectors>, config,
                static_cast<unsigned char*>(encoded), input, noise);
}

}  // namespace

cudaError_t EncodeBf16(uint16_t* codes, const CodecInput& input, cudaStream_t stream) {
  return MapVectors<kVectorLanes<float>>(EncodeBf16Operation{codes, input}, input.n,
                                         AreVectorsAligned(codes, input.values, input.residual),
                                         stream);
}

cudaError_t EncodeInt8(void* encoded, const CodecInput& input, const CodecNoise& noise,
                       cudaStream_t stream) {
  const bool shares_words = noise.first_element % 4 == 0;
  const bool aligned = AreVectorsAligned(input.values, input.residual);
  if (shares_words && aligned) return LaunchEncodeInt8<true, true>(encoded, input, noise, stream);
  if (shares_words) return LaunchEncodeInt8<true, false>(encoded, input, noise, stream);
  return LaunchEncodeInt8<false, false>(encoded, input, noise, stream);
}

}  // namespace lodestar::cuda
