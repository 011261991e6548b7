// SPDX-License-Identifier: Apache-2.0

// One warp computes a row of dx. If the row is wide, several warps compute it. The sums for dgamma
// and dbeta have two stages. Rows of up to 4096 elements stay in registers between the two passes
// over them. Wider rows are read a second time, from the caches.
#include <cuda_bf16.h>

#include <algorithm>
#include <bit>

#include "kernels/cuda/compiler_seam.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/warp.h"

namespace lodestar::cuda {
namespace {

constexpr int kWarps = 8;
// Numbers of warps that share a row if it is too wide for one warp. kAllShare is for rows that are
// also too wide for kSomeShare warps.
constexpr int kSomeShare = 4;
constexpr int kAllShare = kWarps;

// Numbers of elements of a row that each lane keeps in registers. The width of the row decides
// which of them is used. More than kManyKept do not fit.
constexpr int kFewKept = 8;
constexpr int kSomeKept = 24;
constexpr int kManyKept = 32;
constexpr int BlocksPerMultiprocessor(int kept) { return kept <= kSomeKept ? 2 : 1; }
// Number of elements that each lane keeps if several warps share a row. If T is bf16, this leaves
// enough registers to load the next row early. The load then runs while the warps wait for each
// other.
constexpr int kSharedKept = 16;

template <typename T>
struct NormBackwardCall {
  T* dx;              // [rows, width]
  const T* dy;        // [rows, width]
  const T* sum;       // [rows, width]
  const float* mean;  // [rows]
  const float* rstd;  // [rows]
  const T* gamma;     // [width]
  int64_t rows;
  int64_t width;
  bool add_to_dx;
};

// Computes dx = rstd * (g - mean(g) - x_hat * mean(g * x_hat)), where g = dy * gamma.
template <typename T, int kLanes>
__device__ inline void StoreGradient(const NormBackwardCall<T>& b, int64_t at,
                                     const float (&g)[kLanes], const float (&x_hat)[kLanes],
                                     float rstd, float mean_g, float mean_gx) {
  float dx[kLanes] = {};
  if (b.add_to_dx) Load(dx, b.dx + at);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) {
    dx[k] = fmaf(fmaf(x_hat[k], -mean_gx, g[k] - mean_g), rstd, dx[k]);
  }
  Store(b.dx + at, dx);
}

template <typename T, int kLanes>
__device__ inline void LoadNormalised(float (&x_hat)[kLanes], const T* x, float mean, float rstd) {
  Load(x_hat, x);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) x_hat[k] = (x_hat[k] - mean) * rstd;
}

// Multiplies g by gamma, for the columns from `column` on.
template <typename T, int kLanes>
__device__ inline void TimesGamma(float (&g)[kLanes], const NormBackwardCall<T>& b,
                                  int64_t column) {
  float gamma[kLanes];
  Load(gamma, b.gamma + column);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) g[k] *= gamma[k];
}

// Returns the first column of vector v (0 to kVectors - 1) of the lane. A team of kTeamWarps warps
// shares the row.
template <int kLanes, int kTeamWarps>
__device__ inline int Column(int v) {
  constexpr int kTeamLanes = kTeamWarps * kWarpSize;
  return (v * kTeamLanes + static_cast<int>(threadIdx.x) % kTeamLanes) * kLanes;
}

// Returns to each lane the sums of a and of b over the lanes of its team. Must be called by all
// threads of the block. `turn` is the number of earlier calls.
template <int kTeamWarps>
__device__ inline float2 TeamSums(float a, float b, int turn) {
  a = WarpSum(a);
  b = WarpSum(b);
  if constexpr (kTeamWarps == 1) return make_float2(a, b);
  // There are two buffers, so that a warp can write its next sums while other warps still read.
  __shared__ float2 sums[2][kWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  if (threadIdx.x % kWarpSize == 0) sums[turn % 2][warp] = make_float2(a, b);
  __syncthreads();
  const float2* team = sums[turn % 2] + warp / kTeamWarps * kTeamWarps;
  float2 total = team[0];
#pragma unroll
  for (int i = 1; i < kTeamWarps; ++i) {
    total.x += team[i].x;
    total.y += team[i].y;
  }
  return total;
}

// Adds up the teams' sums for dgamma and dbeta in shared [2, width]. The teams add one after the
// other, so that the order is fixed. Stores the totals in partials [blocks, 2, width].
template <int kTeamWarps, int kLanes, int kVectors>
__device__ inline void StoreWeightPartials(float* partials, float* shared,
                                           const float (&dgamma)[kVectors][kLanes],
                                           const float (&dbeta)[kVectors][kLanes], int64_t width) {
  for (int team = 0; team < kWarps / kTeamWarps; ++team) {
    if (team == static_cast<int>(threadIdx.x) / (kTeamWarps * kWarpSize)) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const int column = Column<kLanes, kTeamWarps>(v);
        if (column >= width) continue;
#pragma unroll
        for (int k = 0; k < kLanes; ++k) {
          float* to = shared + column + k;
          to[0] = (team == 0 ? 0.0f : to[0]) + dgamma[v][k];
          to[width] = (team == 0 ? 0.0f : to[width]) + dbeta[v][k];
        }
      }
    }
    __syncthreads();
  }
  for (int64_t i = threadIdx.x; i < 2 * width; i += kWarps * kWarpSize) {
    partials[blockIdx.x * 2 * width + i] = shared[i];
  }
}

// A lane's part of a row, as in memory. It is loaded in accesses of 16 bytes, and unpacked one
// vector at a time.
template <typename T, int kLanes, int kVectors>
struct RowPart {
  static_assert(kLanes * sizeof(T) == sizeof(uint4));
  uint4 dy[kVectors];
  uint4 x[kVectors];
  float mean = 0.0f;
  float rstd = 0.0f;

  __device__ void Unpack(float (&g)[kLanes], float (&x_hat)[kLanes], int v) const {
    Load(g, std::bit_cast<Lanes<T, kLanes>>(dy[v]).at);
    LoadNormalised(x_hat, std::bit_cast<Lanes<T, kLanes>>(x[v]).at, mean, rstd);
  }

  __device__ void LoadStatistics(const NormBackwardCall<T>& b, int64_t row) {
    mean = b.mean[row];
    rstd = b.rstd[row];
  }
  __device__ void LoadVector(int v, const NormBackwardCall<T>& b, int64_t at) {
    dy[v] = *reinterpret_cast<const uint4*>(b.dy + at);
    x[v] = *reinterpret_cast<const uint4*>(b.sum + at);
  }
  // Loads the lane's part of a row. Does nothing if the row does not exist.
  template <int kTeamWarps>
  __device__ void LoadRow(const NormBackwardCall<T>& b, int64_t row) {
    if (row >= b.rows) return;
    LoadStatistics(b, row);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int column = Column<kLanes, kTeamWarps>(v);
      if (column < b.width) LoadVector(v, b, row * b.width + column);
    }
  }
};

// Each team of kTeamWarps warps handles one row in each turn, and keeps its sums for dgamma and
// dbeta in registers. The width must be a multiple of kLanes, at most kTeamWarps * 32 * kLanes *
// kVectors. `partials` is [blocks, 2, width].
template <typename T, int kLanes, int kVectors, int kTeamWarps>
__global__ void __launch_bounds__(kWarps* kWarpSize, BlocksPerMultiprocessor(kLanes* kVectors))
    NormBackwardKernel(NormBackwardCall<T> b, float* partials) {
  constexpr int kTeams = kWarps / kTeamWarps;
  constexpr bool kIsShared = kTeamWarps > 1;
  // The next row is loaded early in bf16 only. In fp32 a row has twice as many bytes, and there are
  // not enough registers for two rows.
  constexpr bool kLoadsAhead = kIsShared && sizeof(T) == 2;
  const float inverse_width = 1.0f / static_cast<float>(b.width);
  float dgamma[kVectors][kLanes] = {};
  float dbeta[kVectors][kLanes] = {};
  const int team = static_cast<int>(threadIdx.x) / (kTeamWarps * kWarpSize);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kTeams;
  int64_t row = static_cast<int64_t>(blockIdx.x) * kTeams + team;
  RowPart<T, kLanes, kVectors> next;
  if constexpr (kLoadsAhead) next.template LoadRow<kTeamWarps>(b, row);
  int turn = 0;
  // If teams have several warps, all teams of a block make the same number of turns, because
  // TeamSums() must be called by all threads. In the last turn, a team may have no row.
  for (; row - (kIsShared ? team : 0) < b.rows; row += step, ++turn) {
    const int width = !kIsShared || row < b.rows ? static_cast<int>(b.width) : 0;
    const int64_t begin = row * b.width;
    RowPart<T, kLanes, kVectors> part;
    if constexpr (kLoadsAhead) {
      part = next;
      next.template LoadRow<kTeamWarps>(b, row + step);
    } else if (width > 0) {
      part.LoadStatistics(b, row);
    }
    float total_g = 0.0f;
    float total_gx = 0.0f;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int column = Column<kLanes, kTeamWarps>(v);
      if (column >= width) continue;
      if constexpr (!kLoadsAhead) part.LoadVector(v, b, begin + column);
      float g[kLanes];
      float x_hat[kLanes];
      part.Unpack(g, x_hat, v);
#pragma unroll
      for (int k = 0; k < kLanes; ++k) {
        dgamma[v][k] = fmaf(g[k], x_hat[k], dgamma[v][k]);
        dbeta[v][k] += g[k];
      }
      TimesGamma(g, b, column);
#pragma unroll
      for (int k = 0; k < kLanes; ++k) {
        total_g += g[k];
        total_gx = fmaf(g[k], x_hat[k], total_gx);
      }
    }
    const float2 totals = TeamSums<kTeamWarps>(total_g, total_gx, turn);
    const float mean_g = totals.x * inverse_width;
    const float mean_gx = totals.y * inverse_width;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      // Computes the column again. If it stayed in registers, other values would spill.
      const int column = Opaque(Column<kLanes, kTeamWarps>(v));
      if (column >= width) continue;
      float g[kLanes];
      float x_hat[kLanes];
      part.Unpack(g, x_hat, v);
      TimesGamma(g, b, column);
      StoreGradient(b, begin + column, g, x_hat, part.rstd, mean_g, mean_gx);
    }
  }
  StoreWeightPartials<kTeamWarps>(partials, DynamicShared<float>(), dgamma, dbeta, b.width);
}

// Computes dx, for any width and alignment.
template <typename T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    NormBackwardInputAnyWidthKernel(NormBackwardCall<T> b) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  if (row >= b.rows) return;
  const int64_t begin = row * b.width;
  const float mean = b.mean[row];
  const float rstd = b.rstd[row];
  float g[1];
  float x_hat[1];
  float total_g = 0.0f;
  float total_gx = 0.0f;
  for (int64_t column = lane; column < b.width; column += kWarpSize) {
    Load(g, b.dy + begin + column);
    TimesGamma(g, b, column);
    LoadNormalised(x_hat, b.sum + begin + column, mean, rstd);
    total_g += g[0];
    total_gx = fmaf(g[0], x_hat[0], total_gx);
  }
  const float inverse_width = 1.0f / static_cast<float>(b.width);
  const float mean_g = WarpSum(total_g) * inverse_width;
  const float mean_gx = WarpSum(total_gx) * inverse_width;
  for (int64_t column = lane; column < b.width; column += kWarpSize) {
    Load(g, b.dy + begin + column);
    TimesGamma(g, b, column);
    LoadNormalised(x_hat, b.sum + begin + column, mean, rstd);
    StoreGradient(b, begin + column, g, x_hat, rstd, mean_g, mean_gx);
  }
}

// Computes the sums for dgamma and dbeta over one part (range of rows), for any width and
// alignment. `partials` is [parts, 2, width]. A block has 32 x 8 threads and handles 32 columns. A
// thread adds up column threadIdx.x in every eighth row, from row threadIdx.y of the part on.
template <typename T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    NormBackwardWeightsAnyWidthKernel(NormBackwardCall<T> b, float* partials,
                                      int64_t rows_per_part) {
  __shared__ float sums[2][kWarps][kWarpSize];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarpSize + threadIdx.x;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * rows_per_part;
  const int64_t end = begin + rows_per_part < b.rows ? begin + rows_per_part : b.rows;
  float dgamma = 0.0f;
  float dbeta = 0.0f;
  if (column < b.width) {
    for (int64_t row = begin + threadIdx.y; row < end; row += kWarps) {
      float dy[1];
      float x_hat[1];
      Load(dy, b.dy + row * b.width + column);
      LoadNormalised(x_hat, b.sum + row * b.width + column, b.mean[row], b.rstd[row]);
      dgamma = fmaf(dy[0], x_hat[0], dgamma);
      dbeta += dy[0];
    }
  }
  sums[0][threadIdx.y][threadIdx.x] = dgamma;
  sums[1][threadIdx.y][threadIdx.x] = dbeta;
  __syncthreads();
  const int which = threadIdx.y;
  if (which >= 2 || column >= b.width) return;
  float total = sums[which][0][threadIdx.x];
  for (int warp = 1; warp < kWarps; ++warp) total += sums[which][warp][threadIdx.x];
  partials[(static_cast<int64_t>(blockIdx.y) * 2 + which) * b.width + column] = total;
}

// Maximum number of parts: two blocks for each of 128 multiprocessors, which is enough for a large
// card.
constexpr int64_t kMaxParts = 256;

int64_t RowsPerPart(int64_t rows) {
  return CeilDiv(std::max<int64_t>(1, CeilDiv(rows, kMaxParts)), kWarps) * kWarps;
}
int64_t NumParts(int64_t rows) { return CeilDiv(rows, RowsPerPart(rows)); }

template <typename T, int kKept, int kTeamWarps>
cudaError_t LaunchBackward(const NormBackwardCall<T>& b, float* partials, cudaStream_t stream) {
  const LaunchConfig config{.grid = dim3(static_cast<unsigned>(NumParts(b.rows))),
                            .block = dim3(kWarps * kWarpSize),
                            .shared_bytes = static_cast<size_t>(2 * b.width) * sizeof(float),
                            .stream = stream};
  return Launch(NormBackwardKernel<T, kVectorLanes<T>, kKept / kVectorLanes<T>, kTeamWarps>, config,
                b, partials);
}

template <typename T>
cudaError_t LaunchAnyBackward(const NormBackwardCall<T>& b, float* partials, cudaStream_t stream) {
  const LaunchConfig rows{.grid = dim3(static_cast<unsigned>(CeilDiv(b.rows, kWarps))),
                          .block = dim3(kWarps * kWarpSize),
                          .stream = stream};
  const cudaError_t error = Launch(NormBackwardInputAnyWidthKernel<T>, rows, b);
  if (error != cudaSuccess) return error;
  const LaunchConfig parts{.grid = dim3(static_cast<unsigned>(CeilDiv(b.width, kWarpSize)),
                                        static_cast<unsigned>(NumParts(b.rows))),
                           .block = dim3(kWarpSize, kWarps),
                           .stream = stream};
  return Launch(NormBackwardWeightsAnyWidthKernel<T>, parts, b, partials, RowsPerPart(b.rows));
}

template <typename T>
cudaError_t QueueBackward(const NormBackwardCall<T>& b, bool are_vectors, float* partials,
                          cudaStream_t stream) {
  const auto holds = [&](int kept, int team_warps) {
    return are_vectors && b.width <= kept * team_warps * kWarpSize;
  };
  if (holds(kFewKept, 1)) return LaunchBackward<T, kFewKept, 1>(b, partials, stream);
  if (holds(kSomeKept, 1)) return LaunchBackward<T, kSomeKept, 1>(b, partials, stream);
  if (holds(kManyKept, 1)) return LaunchBackward<T, kManyKept, 1>(b, partials, stream);
  if (holds(kSharedKept, kSomeShare)) {
    return LaunchBackward<T, kSharedKept, kSomeShare>(b, partials, stream);
  }
  if (holds(kSharedKept, kAllShare)) {
    return LaunchBackward<T, kSharedKept, kAllShare>(b, partials, stream);
  }
  return LaunchAnyBackward(b, partials, stream);
}

}  // namespace

size_t NormBackwardWorkspaceBytes(int64_t rows, int64_t width) {
  return NumParts(rows) * 2 * width * sizeof(float);
}

template <typename T>
cudaError_t NormBackward(T* dx, float* dgamma, float* dbeta, const T* dy, const T* sum,
                         const float* mean, const float* rstd, const T* gamma, int64_t rows,
                         int64_t width, bool add_to_dx, bool add_to_weights, void* workspace,
                         cudaStream_t stream) {
  if (width == 0) return cudaSuccess;
  float* partials = static_cast<float*>(workspace);
  if (rows > 0) {
    const bool are_vectors = width % kVectorLanes<T> == 0 && AreVectorsAligned(dx, dy, sum, gamma);
    const cudaError_t error =
        QueueBackward(NormBackwardCall<T>{dx, dy, sum, mean, rstd, gamma, rows, width, add_to_dx},
                      are_vectors, partials, stream);
    if (error != cudaSuccess) return error;
  }
  return CombinePartialPairs(dgamma, dbeta, partials, NumParts(rows), width, add_to_weights,
                             stream);
}

template cudaError_t NormBackward(float*, float*, float*, const float*, const float*, const float*,
                                  const float*, const float*, int64_t, int64_t, bool, bool, void*,
                                  cudaStream_t);
template cudaError_t NormBackward(__nv_bfloat16*, float*, float*, const __nv_bfloat16*,
                                  const __nv_bfloat16*, const float*, const float*,
                                  const __nv_bfloat16*, int64_t, int64_t, bool, bool, void*,
                                  cudaStream_t);

}  // namespace lodestar::cuda
