// SPDX-License-Identifier: Apache-2.0

// A radix sort that begins with the least significant digit. Digits have four bits. Each pass runs
// three kernels:
// - The first counts the digits of each tile of keys.
// - The second computes from the counts where the keys of each digit and tile begin in the output.
//   Digits come in their order, and for each digit the tiles in theirs.
// - The third moves the keys there. Every thread has consecutive keys and its own counters, so keys
//   with equal digits keep their order.
#include "kernels/cuda/radix_sort.h"

#include <bit>
#include <utility>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/warp.h"

namespace lodestar::cuda {
namespace {

constexpr int kDigitBits = 4;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kThreads = 128;
constexpr int kKeysPerThread = 8;
constexpr int kTileKeys = kThreads * kKeysPerThread;

int64_t NumTiles(int64_t n) { return CeilDiv(n, kTileKeys); }

struct Pass {
  const int32_t* keys;        // [n]
  const int32_t* positions;   // [n]; null means 0, 1, 2 and so on
  int32_t* sorted_keys;       // [n]
  int32_t* sorted_positions;  // [n]
  int32_t* counts;            // [kDigits, tiles]
  int32_t n;
  int32_t end;
  int shift;
};

__device__ inline int32_t KeyAt(const Pass& p, int32_t i) {
  const int32_t key = p.keys[i];
  return key >= 0 && key < p.end ? key : p.end;
}
__device__ inline int DigitOf(const Pass& p, int32_t key) { return key >> p.shift & (kDigits - 1); }

// Returns the sum of `value` over all threads with a lower index. `warps` is [kThreads / 32] in
// shared memory.
__device__ inline int ExclusiveBlockSum(int value, int* warps) {
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  const int inclusive = WarpInclusiveSum(value);
  if (lane == kWarpSize - 1) warps[warp] = inclusive;
  __syncthreads();
  int sum = inclusive - value;
  for (int i = 0; i < warp; ++i) sum += warps[i];
  return sum;
}

// Counts each digit among the keys of each thread. `counters` is [kDigits, kThreads].
__device__ inline void CountOwnDigits(const Pass& p, int (*counters)[kThreads]) {
#pragma unroll
  for (int digit = 0; digit < kDigits; ++digit) counters[digit][threadIdx.x] = 0;
  const int32_t first = static_cast<int32_t>(GlobalThread()) * kKeysPerThread;
  for (int32_t i = first; i < first + kKeysPerThread && i < p.n; ++i) {
    ++counters[DigitOf(p, KeyAt(p, i))][threadIdx.x];
  }
}

__global__ void __launch_bounds__(kThreads) RadixCountKernel(Pass p) {
  __shared__ int counters[kDigits][kThreads];
  CountOwnDigits(p, counters);
  __syncthreads();
  // Eight threads add up the 128 counters of a digit, 16 counters each.
  constexpr int kThreadsPerDigit = kThreads / kDigits;
  const int digit = threadIdx.x / kThreadsPerDigit;
  int sum = 0;
  for (int i = threadIdx.x % kThreadsPerDigit; i < kThreads; i += kThreadsPerDigit) {
    sum += counters[digit][i];
  }
#pragma unroll
  for (int offset = kThreadsPerDigit / 2; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, offset);
  }
  if (threadIdx.x % kThreadsPerDigit == 0) p.counts[digit * gridDim.x + blockIdx.x] = sum;
}

// Replaces each element of counts [n] by the sum of all elements before it. Runs as one block.
__global__ void __launch_bounds__(kThreads) RadixPlacesKernel(int32_t* counts, int32_t n) {
  __shared__ int warps[kThreads / kWarpSize];
  __shared__ int total;
  int carry = 0;
  for (int32_t begin = 0; begin < n; begin += kThreads) {
    const int32_t i = begin + static_cast<int32_t>(threadIdx.x);
    const int count = i < n ? counts[i] : 0;
    const int before = ExclusiveBlockSum(count, warps);
    if (i < n) counts[i] = carry + before;
    if (threadIdx.x == kThreads - 1) total = before + count;
    __syncthreads();
    // Before `total` is written again, ExclusiveBlockSum() has a barrier, so all threads have read
    // it.
    carry += total;
  }
}

__global__ void __launch_bounds__(kThreads) RadixMoveKernel(Pass p) {
  __shared__ int counters[kDigits][kThreads];
  __shared__ int warps[kThreads / kWarpSize];
  CountOwnDigits(p, counters);
  __syncthreads();
  // The counters are ordered by digit, then by thread. This thread handles kDigits consecutive
  // counters. It replaces each counter by the sum of all counters before it. This sum is the place
  // in the sorted tile of the first key that the counter has counted.
  int* own = &counters[0][0] + threadIdx.x * kDigits;
  int sum = 0;
#pragma unroll
  for (int k = 0; k < kDigits; ++k) sum += own[k];
  int before = ExclusiveBlockSum(sum, warps);
#pragma unroll
  for (int k = 0; k < kDigits; ++k) {
    const int count = own[k];
    own[k] = before;
    before += count;
  }
  __syncthreads();
  // shifts[digit] is a key's place among all sorted keys minus its place in the sorted tile. It is
  // the same for all keys with this digit, because the tile's first such key goes to place
  // counts[digit][tile]. It must be computed before keys are moved, because thread 0 then
  // increments counters[digit][0].
  __shared__ int shifts[kDigits];
  if (threadIdx.x < kDigits) {
    shifts[threadIdx.x] = p.counts[threadIdx.x * gridDim.x + blockIdx.x] - counters[threadIdx.x][0];
  }
  __syncthreads();
  const int32_t first = static_cast<int32_t>(GlobalThread()) * kKeysPerThread;
  for (int32_t i = first; i < first + kKeysPerThread && i < p.n; ++i) {
    const int32_t key = KeyAt(p, i);
    const int digit = DigitOf(p, key);
    const int32_t place = shifts[digit] + counters[digit][threadIdx.x]++;
    p.sorted_keys[place] = key;
    p.sorted_positions[place] = p.positions != nullptr ? p.positions[i] : i;
  }
}

cudaError_t QueuePass(const Pass& p, cudaStream_t stream) {
  const LaunchConfig tiles{.grid = dim3(static_cast<unsigned>(NumTiles(p.n))),
                           .block = dim3(kThreads),
                           .stream = stream};
  const LaunchConfig one_block{.grid = dim3(1), .block = dim3(kThreads), .stream = stream};
  cudaError_t error = Launch(RadixCountKernel, tiles, p);
  if (error != cudaSuccess) return error;
  error =
      Launch(RadixPlacesKernel, one_block, p.counts, static_cast<int32_t>(kDigits * NumTiles(p.n)));
  if (error != cudaSuccess) return error;
  return Launch(RadixMoveKernel, tiles, p);
}

}  // namespace

// The workspace has two pairs of arrays for keys and positions, and the counts. The passes write to
// the two pairs in turn.
size_t SortKeysWorkspaceBytes(int64_t n) {
  return (4 * n + kDigits * NumTiles(n)) * sizeof(int32_t);
}

cudaError_t SortKeys(SortedKeys* sorted, const int32_t* keys, int64_t n, int32_t end,
                     void* workspace, cudaStream_t stream) {
  int32_t* memory = static_cast<int32_t*>(workspace);
  Pass pass{keys, nullptr, memory, memory + n, memory + 4 * n, static_cast<int32_t>(n), end, 0};
  int32_t* spare = memory + 2 * n;
  const int bits = std::bit_width(static_cast<uint32_t>(end));
  do {
    if (n > 0) {
      const cudaError_t error = QueuePass(pass, stream);
      if (error != cudaSuccess) return error;
    }
    *sorted = {pass.sorted_keys, pass.sorted_positions};
    pass.keys = pass.sorted_keys;
    pass.positions = pass.sorted_positions;
    std::swap(pass.sorted_keys, spare);
    pass.sorted_positions = pass.sorted_keys + n;
    pass.shift += kDigitBits;
  } while (pass.shift < bits);
  return cudaSuccess;
}

}  // namespace lodestar::cuda
