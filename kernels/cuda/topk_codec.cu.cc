// SPDX-License-Identifier: Apache-2.0

// Each thread block encodes one block of the encoding, whose elements are in shared memory. The
// smallest kept magnitude is found digit by digit, from the highest digit on. Then the kept
// elements are written in order. Counts and sums are integers, so their order does not change the
// bytes.
#include "kernels/cuda/topk_codec.h"

#include <algorithm>

#include "kernels/cuda/codec_input.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/warp.h"

namespace lodestar::cuda {
namespace {

constexpr uint32_t kInfinity = 0x7f800000;  // bits of an fp32 Inf
constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr uint32_t kNan = 0x7fc00000;
constexpr float kSmallest = 0x1p-100f;  // below this largest magnitude, a block is encoded as zeros

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kRows = kTopKBlockElements / kThreads;  // element = row * kThreads + thread
constexpr int kDigits = 256;
constexpr int kDigitsPerLane = kDigits / kWarpSize;

struct Levels {
  float low;
  float step;

  __device__ inline float MagnitudeAt(int level) const {
    return __fadd_rn(low, __fmul_rn(static_cast<float>(level), step));
  }
};

__device__ inline bool IsFinite(float x) { return (__float_as_uint(x) & kMagnitude) < kInfinity; }

// Returns the bits of the nearest bf16, ties to even. A finite value stays finite.
__device__ inline uint32_t RoundedToBf16(float value) {
  constexpr uint32_t kLargest = 0x7f7f0000;  // largest finite bf16
  const uint32_t bits = __float_as_uint(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000;
  return rounded < kLargest ? rounded : kLargest;
}

struct Shared {
  uint32_t sums[kTopKBlockElements];  // bits of scale * values + residual
  // FindThreshold() uses it for the number of elements with each digit. KeepInOrder() uses it for
  // the number of elements above the threshold, for each row and warp.
  uint32_t counts[kDigits];
  uint32_t tie_counts[kDigits];  // elements equal to the threshold, by row and warp
  uint32_t kept[kMostKept];      // bits of the kept elements, in order
  uint32_t parts[kMostKept];     // magnitudes as parts of the largest
  uint16_t places[kMostKept];
  uint8_t codes[kMostKept];
  uint32_t largest;
  uint32_t prefix;
  uint32_t wanted;  // number of elements to keep of those with `prefix`
  Levels levels;
};
static_assert(kRows * kWarps <= kDigits);

// Finds the digit of the `wanted`-th largest element, where 1 is the largest. Sets *wanted_of_digit
// to the rank of this element among the elements with the same digit. counts [kDigits] has the
// number of elements for each digit. Called by warp 0.
__device__ inline void ChooseDigit(const uint32_t* counts, uint32_t wanted, int* digit,
                                   uint32_t* wanted_of_digit) {
  const int lane = threadIdx.x % kWarpSize;
  // Lane 0 handles the highest digits.
  const int highest = kDigits - 1 - lane * kDigitsPerLane;
  uint32_t own = 0;
#pragma unroll
  for (int i = 0; i < kDigitsPerLane; ++i) own += counts[highest - i];
  const uint32_t inclusive = WarpInclusiveSum(own);
  uint32_t above = inclusive - own;
  const bool has_it = above < wanted && wanted <= inclusive;
  int found = 0;
  uint32_t rest = 0;
  if (has_it) {
    for (int i = 0; i < kDigitsPerLane; ++i) {
      const uint32_t count = counts[highest - i];
      if (wanted <= above + count) {
        found = highest - i;
        rest = wanted - above;
        break;
      }
      above += count;
    }
  }
  const unsigned owner = __ballot_sync(kAllLanes, has_it);
  *digit = __shfl_sync(kAllLanes, found, __ffs(static_cast<int>(owner)) - 1);
  *wanted_of_digit = __shfl_sync(kAllLanes, rest, __ffs(static_cast<int>(owner)) - 1);
}

// Sets shared.prefix to the bits of the `kept`-th largest magnitude of the block. Sets
// shared.wanted to the number of kept elements that have exactly this magnitude.
__device__ inline void FindThreshold(Shared& shared, int size, int kept) {
  const int thread = threadIdx.x;
  if (thread == 0) {
    shared.prefix = 0;
    shared.wanted = static_cast<uint32_t>(kept);
  }
  uint32_t known = 0;  // mask of the final bits of shared.prefix
  // A magnitude has 31 bits, so the last digit shares one bit with the digit before it.
  for (int shift = 23; shift > -8; shift -= 8) {
    const int low = shift > 0 ? shift : 0;
    shared.counts[thread] = 0;
    __syncthreads();
    const uint32_t prefix = shared.prefix;
    for (int row = 0; row < kRows; ++row) {
      const int i = row * kThreads + thread;
      if (i >= size) continue;
      const uint32_t magnitude = shared.sums[i] & kMagnitude;
      if ((magnitude & known) == prefix) atomicAdd(&shared.counts[magnitude >> low & 0xff], 1u);
    }
    __syncthreads();
    if (thread < kWarpSize) {
      int digit = 0;
      uint32_t wanted = 0;
      ChooseDigit(shared.counts, shared.wanted, &digit, &wanted);
      __syncwarp();
      if (thread == 0) {
        shared.prefix |= static_cast<uint32_t>(digit) << low;
        shared.wanted = wanted;
      }
    }
    known |= 0xffu << low;
    __syncthreads();
  }
}

// Sets each element of counts [kRows * kWarps] to the sum of the elements before it. Called by warp
// 0.
__device__ inline void SumBefore(uint32_t* counts) {
  constexpr int kPerLane = kRows * kWarps / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  uint32_t own[kPerLane];
  uint32_t total = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    own[i] = counts[lane * kPerLane + i];
    total += own[i];
  }
  uint32_t before = WarpInclusiveSum(total) - total;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    counts[lane * kPerLane + i] = before;
    before += own[i];
  }
}

// Copies the kept elements to shared.kept, in order. These are the elements whose magnitude is
// above shared.prefix, and the first shared.wanted elements whose magnitude equals it.
__device__ inline void KeepInOrder(Shared& shared, int size) {
  const int thread = threadIdx.x;
  const int lane = thread % kWarpSize;
  const int warp = thread / kWarpSize;
  const uint32_t threshold = shared.prefix;
  const uint32_t ties = shared.wanted;
  for (int row = 0; row < kRows; ++row) {
    const int i = row * kThreads + thread;
    const uint32_t magnitude = shared.sums[i] & kMagnitude;
    const unsigned above = __ballot_sync(kAllLanes, i < size && magnitude > threshold);
    const unsigned equal = __ballot_sync(kAllLanes, i < size && magnitude == threshold);
    if (lane == 0) {
      shared.counts[row * kWarps + warp] = static_cast<uint32_t>(__popc(above));
      shared.tie_counts[row * kWarps + warp] = static_cast<uint32_t>(__popc(equal));
    }
  }
  __syncthreads();
  if (warp == 0) {
    SumBefore(shared.counts);
    SumBefore(shared.tie_counts);
  }
  __syncthreads();
  const unsigned lower_lanes = (1u << lane) - 1;
  for (int row = 0; row < kRows; ++row) {
    const int i = row * kThreads + thread;
    const uint32_t magnitude = shared.sums[i] & kMagnitude;
    const bool is_above = i < size && magnitude > threshold;
    const bool is_equal = i < size && magnitude == threshold;
    const unsigned above = __ballot_sync(kAllLanes, is_above);
    const unsigned equal = __ballot_sync(kAllLanes, is_equal);
    const uint32_t above_before =
        shared.counts[row * kWarps + warp] + static_cast<uint32_t>(__popc(above & lower_lanes));
    const uint32_t equal_before =
        shared.tie_counts[row * kWarps + warp] + static_cast<uint32_t>(__popc(equal & lower_lanes));
    if (!is_above && !(is_equal && equal_before < ties)) continue;
    const uint32_t position = above_before + min(equal_before, ties);
    shared.kept[position] = shared.sums[i];
    shared.places[position] = static_cast<uint16_t>(i);
  }
  __syncthreads();
}

// Divides the kept magnitudes into small and large ones, so that each is near the mean of its class
// (2-means). Returns the mean of the small ones as `low`, and that of the large ones as `step`.
// Computes in units of 2^-20 of the largest magnitude. Called by warp 0.
__device__ inline Levels TwoMeans(Shared& shared, int kept) {
  constexpr float kParts = 0x1p20f;
  constexpr int kPasses = 4;
  const int lane = threadIdx.x % kWarpSize;
  const float largest = __uint_as_float(shared.largest);
  uint32_t total = 0;
  for (int i = lane; i < kept; i += kWarpSize) {
    const float magnitude = __uint_as_float(shared.kept[i] & kMagnitude);
    shared.parts[i] = static_cast<uint32_t>(__fmul_rn(__fdiv_rn(magnitude, largest), kParts));
    total += shared.parts[i];
  }
  total = WarpSum(total);
  uint32_t split = total / static_cast<uint32_t>(kept);
  uint32_t low = split;
  uint32_t high = split;
  for (int pass = 0; pass < kPasses; ++pass) {
    uint32_t count = 0;
    uint32_t sum = 0;
    for (int i = lane; i < kept; i += kWarpSize) {
      const uint32_t part = shared.parts[i];
      count += part > split ? 1 : 0;
      sum += part > split ? part : 0;
    }
    count = WarpSum(count);
    sum = WarpSum(sum);
    if (count == 0) break;  // all magnitudes are equal
    high = sum / count;
    low = (total - sum) / (static_cast<uint32_t>(kept) - count);
    split = (low + high) / 2;
  }
  const auto whole = [largest](uint32_t part) {
    return __fmul_rn(__fmul_rn(static_cast<float>(static_cast<int>(part)), 1.0f / kParts), largest);
  };
  return {whole(low), whole(high)};
}

// Returns the lowest and the highest magnitude. Called by warp 0.
__device__ inline Levels WholeRange(const Shared& shared, int kept) {
  uint32_t least = kInfinity;
  for (int i = threadIdx.x % kWarpSize; i < kept; i += kWarpSize) {
    least = min(least, shared.kept[i] & kMagnitude);
  }
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    least = min(least, __shfl_xor_sync(kAllLanes, least, offset));
  }
  return {__uint_as_float(least), __uint_as_float(shared.largest)};
}

// Returns evenly spaced levels from range.low to range.step. In `range`, `step` is the highest
// level and not a step.
__device__ inline Levels LevelsFrom(const Levels& range, int largest_level) {
  const float low = __uint_as_float(RoundedToBf16(range.low));
  const float exact = range.step > low
                          ? __fdiv_rn(__fsub_rn(range.step, low), static_cast<float>(largest_level))
                          : 0.0f;
  const uint32_t step = RoundedToBf16(exact);
  const Levels levels = {low, __uint_as_float(step)};
  if (IsFinite(levels.MagnitudeAt(largest_level))) return levels;
  return {low, __uint_as_float(step - 0x10000)};
}

__device__ inline int LevelOf(float magnitude, const Levels& levels, int largest_level) {
  if (levels.step == 0.0f) return 0;
  const float level = __fadd_rn(__fdiv_rn(__fsub_rn(magnitude, levels.low), levels.step), 0.5f);
  if (!(level < static_cast<float>(largest_level))) return largest_level;
  return level > 0.0f ? static_cast<int>(level) : 0;
}

__device__ inline void WriteBlock(const Shared& shared, const TopKFormat& format, int kept,
                                  unsigned char* to) {
  const int thread = threadIdx.x;
  if (thread == 0) {
    const uint32_t words[2] = {__float_as_uint(shared.levels.low) >> 16,
                               __float_as_uint(shared.levels.step) >> 16};
    for (int i = 0; i < 2; ++i) {
      to[2 * i] = static_cast<unsigned char>(words[i]);
      to[2 * i + 1] = static_cast<unsigned char>(words[i] >> 8);
    }
  }
  unsigned char* const places = to + TopKFormat::kLevelBytes;
  for (int pair = thread; pair < (kept + 1) / 2; pair += kThreads) {
    const bool has_second = 2 * pair + 1 < kept;
    const uint32_t first = shared.places[2 * pair];
    const uint32_t second = has_second ? shared.places[2 * pair + 1] : 0;
    places[3 * pair] = static_cast<unsigned char>(first);
    places[3 * pair + 1] = static_cast<unsigned char>(first >> 8 | second << 4);
    if (has_second) places[3 * pair + 2] = static_cast<unsigned char>(second >> 4);
  }
  unsigned char* const codes = places + TopKFormat::PlaceBytes(kept);
  const int per_byte = 8 / format.bits;
  for (int byte = thread; byte < format.CodeBytes(kept); byte += kThreads) {
    uint32_t packed = 0;
    for (int i = 0; i < per_byte; ++i) {
      const int at = byte * per_byte + i;
      if (at < kept) packed |= static_cast<uint32_t>(shared.codes[at]) << (format.bits * i);
    }
    codes[byte] = static_cast<unsigned char>(packed);
  }
}

// encoded is [blocks, format.BlockBytes(format.topk)].
__global__ void __launch_bounds__(kThreads)
    EncodeTopKKernel(unsigned char* encoded, CodecInput input, TopKFormat format) {
  __shared__ Shared shared;
  const int thread = threadIdx.x;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kTopKBlockElements;
  const int size =
      static_cast<int>(input.n - begin < kTopKBlockElements ? input.n - begin : kTopKBlockElements);
  const int kept = format.topk < size ? format.topk : size;
  const int largest_level = (1 << (format.bits - 1)) - 1;
  if (thread == 0) shared.largest = 0;
  __syncthreads();
  uint32_t largest = 0;
  for (int row = 0; row < kRows; ++row) {
    const int i = row * kThreads + thread;
    float sum[1] = {0.0f};
    if (i < size) LoadSum(sum, input, begin + i);
    shared.sums[i] = __float_as_uint(sum[0]);
    largest = max(largest, shared.sums[i] & kMagnitude);
  }
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, offset));
  }
  if (thread % kWarpSize == 0) atomicMax(&shared.largest, largest);
  __syncthreads();
  largest = shared.largest;
  if (largest >= kInfinity || __uint_as_float(largest) < kSmallest) {
    for (int i = thread; i < kept; i += kThreads) {
      shared.places[i] = static_cast<uint16_t>(i);
      shared.codes[i] = 0;
    }
    if (thread == 0) {
      shared.levels = {largest >= kInfinity ? __uint_as_float(kNan) : 0.0f, 0.0f};
    }
    __syncthreads();
  } else {
    FindThreshold(shared, size, kept);
    KeepInOrder(shared, size);
    if (thread < kWarpSize) {
      const Levels range = format.bits == 2 ? TwoMeans(shared, kept) : WholeRange(shared, kept);
      if (thread == 0) shared.levels = LevelsFrom(range, largest_level);
    }
    __syncthreads();
    for (int i = thread; i < kept; i += kThreads) {
      const uint32_t bits = shared.kept[i];
      const int level = LevelOf(__uint_as_float(bits & kMagnitude), shared.levels, largest_level);
      shared.codes[i] =
          static_cast<uint8_t>(level | static_cast<int>(bits >> 31) << (format.bits - 1));
    }
    __syncthreads();
  }
  WriteBlock(shared, format, kept,
             encoded + static_cast<int64_t>(blockIdx.x) * format.BlockBytes(format.topk));
}

// lost is [n], encoded is [blocks, format.BlockBytes(format.topk)].
__global__ void __launch_bounds__(kThreads)
    LostInTopKKernel(float* lost, CodecInput input, TopKFormat format, const unsigned char* encoded,
                     float decay) {
  __shared__ float decoded[kTopKBlockElements];
  const int thread = threadIdx.x;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kTopKBlockElements;
  const int size =
      static_cast<int>(input.n - begin < kTopKBlockElements ? input.n - begin : kTopKBlockElements);
  const int kept = format.topk < size ? format.topk : size;
  const unsigned char* const block =
      encoded + static_cast<int64_t>(blockIdx.x) * format.BlockBytes(format.topk);
  const auto level_at = [block](int i) {
    return __uint_as_float(static_cast<uint32_t>(block[2 * i] | block[2 * i + 1] << 8) << 16);
  };
  const Levels levels = {level_at(0), level_at(1)};
  const bool is_spoilt = !IsFinite(levels.low) || !IsFinite(levels.step);
  for (int row = 0; row < kRows; ++row) {
    decoded[row * kThreads + thread] = is_spoilt ? __uint_as_float(kNan) : 0.0f;
  }
  __syncthreads();
  const unsigned char* const places = block + TopKFormat::kLevelBytes;
  const unsigned char* const codes = places + TopKFormat::PlaceBytes(kept);
  for (int i = thread; i < kept && !is_spoilt; i += kThreads) {
    const unsigned char* const pair = places + 3 * (i / 2);
    const int place = i % 2 == 0 ? pair[0] | (pair[1] & 0xf) << 8 : pair[1] >> 4 | pair[2] << 4;
    const int bit = format.bits * i;
    const int code = codes[bit / 8] >> (bit % 8) & ((1 << format.bits) - 1);
    const int sign_bit = 1 << (format.bits - 1);
    const float magnitude = levels.MagnitudeAt(code & (sign_bit - 1));
    decoded[place] = (code & sign_bit) != 0 ? -magnitude : magnitude;
  }
  __syncthreads();
  for (int row = 0; row < kRows; ++row) {
    const int i = row * kThreads + thread;
    if (i >= size) continue;
    float sum[1];
    LoadSum(sum, input, begin + i);
    lost[begin + i] = __fmul_rn(__fsub_rn(sum[0], decoded[i]), decay);
  }
}

LaunchConfig BlocksOf(int64_t n, cudaStream_t stream) {
  return {.grid = dim3(static_cast<unsigned>(CeilDiv(n, kTopKBlockElements))),
          .block = dim3(kThreads),
          .stream = stream};
}

}  // namespace

cudaError_t EncodeTopK(void* encoded, const CodecInput& input, const TopKFormat& format,
                       cudaStream_t stream) {
  return Launch(EncodeTopKKernel, BlocksOf(input.n, stream), static_cast<unsigned char*>(encoded),
                input, format);
}

cudaError_t LostInTopK(float* lost, const CodecInput& input, const TopKFormat& format,
                       const void* encoded, float decay, cudaStream_t stream) {
  return Launch(LostInTopKKernel, BlocksOf(input.n, stream), lost, input, format,
                static_cast<const unsigned char*>(encoded), decay);
}

}  // namespace lodestar::cuda
