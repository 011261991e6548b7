// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/embed.h"

#include <cuda_bf16.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/radix_sort.h"
#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/vector_map.h"

namespace lodestar::cuda {
namespace {

template <typename T>
struct EmbedForwardOperation {
  T* y;                     // [rows, width]
  const int32_t* tokens;    // [rows]
  const T* token_table;     // [vocabulary, width]
  const T* position_table;  // [context_tokens, width]
  int64_t context_tokens;
  int64_t width;
  int64_t vocabulary;

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    const int64_t row = Quotient(i, width);
    const int64_t column = i - row * width;
    const int64_t position = row - Quotient(row, context_tokens) * context_tokens;
    const int64_t token = tokens[row];
    float sum[kLanes];
    Load(sum, position_table + position * width + column);
    if (token >= 0 && token < vocabulary) {
      float addend[kLanes];
      Load(addend, token_table + token * width + column);
#pragma unroll
      for (int k = 0; k < kLanes; ++k) sum[k] += addend[k];
    } else {
#pragma unroll
      for (int k = 0; k < kLanes; ++k) sum[k] = NAN;
    }
    Store(y + i, sum);
  }
};

// Adds to dposition_table[position] the rows of dy that have this position, in the order of
// samples. Each thread handles some elements of the table.
template <typename T>
struct EmbedPositionsBackwardOperation {
  float* table;  // [context_tokens, width]
  const T* dy;   // [rows, width]
  int64_t rows;
  int64_t context_tokens;
  int64_t width;

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    const int64_t position = Quotient(i, width);
    const int64_t column = i - position * width;
    float sum[kLanes] = {};
#pragma unroll 4
    for (int64_t row = position; row < rows; row += context_tokens) {
      float values[kLanes];
      Load(values, dy + row * width + column);
#pragma unroll
      for (int k = 0; k < kLanes; ++k) sum[k] += values[k];
    }
    AddTo(table + i, sum);
  }

 private:
  // Adds `sum` to `to`. The kLanes floats may have twice the 16 bytes of an access, because
  // elements of dy may be smaller. So the table is accessed in steps.
  template <int kLanes>
  __device__ static void AddTo(float* to, const float (&sum)[kLanes]) {
    constexpr int kStep = kLanes < kVectorLanes<float> ? kLanes : kVectorLanes<float>;
#pragma unroll
    for (int first = 0; first < kLanes; first += kStep) {
      float total[kStep];
      Load(total, to + first);
#pragma unroll
      for (int k = 0; k < kStep; ++k) total[k] += sum[first + k];
      Store(to + first, total);
    }
  }
};

// Rows of dy are sorted by token. Sorted rows with the same token are a run. The sorted rows are
// also divided into tiles of kTileRows. Two kernels add the rows to the table:
// - In the first kernel, the tile in which a run begins adds its rows of the run to the table. Each
//   later tile of the run stores the sum of its rows of the run.
// - The second kernel adds these sums to the table.
constexpr int kTileRows = 64;
constexpr int kThreads = 128;

int64_t NumTiles(int64_t rows) { return CeilDiv(rows, kTileRows); }

template <typename T>
struct Segments {
  float* table;  // [vocabulary, width]
  // For each tile, the sum of its rows of a run that began in an earlier tile.
  float* continued;   // [tiles, width]
  const T* dy;        // [rows, width]
  SortedKeys sorted;  // the rows' tokens, sorted
  int64_t rows;
  int64_t width;
  int32_t vocabulary;
};

template <typename T>
__device__ inline bool Continues(const Segments<T>& s, int64_t at) {
  return at > 0 && at < s.rows && s.sorted.keys[at] == s.sorted.keys[at - 1];
}

template <typename T, int kLanes>
__device__ inline void AddToTable(const Segments<T>& s, int32_t token, int64_t column,
                                  const float (&sum)[kLanes]) {
  if (token >= s.vocabulary) return;
  float* to = s.table + token * s.width + column;
#pragma unroll
  for (int k = 0; k < kLanes; ++k) to[k] += sum[k];
}

// Block (x, y) handles tile x, for one group of columns. y is the number of the group.
template <typename T, int kLanes>
__global__ void __launch_bounds__(kThreads) EmbedTileSumsKernel(Segments<T> s) {
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kLanes;
  if (column >= s.width) return;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kTileRows;
  const int64_t end = begin + kTileRows < s.rows ? begin + kTileRows : s.rows;
  bool began_before = Continues(s, begin);
  float sum[kLanes] = {};
#pragma unroll 4
  for (int64_t at = begin; at < end; ++at) {
    float values[kLanes];
    Load(values, s.dy + s.sorted.positions[at] * s.width + column);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) sum[k] += values[k];
    if (at + 1 < end && Continues(s, at + 1)) continue;
    if (began_before) {
      float* to = s.continued + blockIdx.x * s.width + column;
#pragma unroll
      for (int k = 0; k < kLanes; ++k) to[k] = sum[k];
    } else {
      AddToTable(s, s.sorted.keys[at], column, sum);
    }
#pragma unroll
    for (int k = 0; k < kLanes; ++k) sum[k] = 0.0f;
    began_before = false;
  }
}

// Block (x, y) handles a run that begins in tile x and ends in a later tile, for one group of
// columns. y is the number of the group.
template <typename T>
__global__ void __launch_bounds__(kThreads) EmbedContinuedSumsKernel(Segments<T> s) {
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  const int64_t next = (static_cast<int64_t>(blockIdx.x) + 1) * kTileRows;
  if (column >= s.width || !Continues(s, next)) return;
  const int32_t token = s.sorted.keys[next];
  const int64_t begin = next - kTileRows;
  if (Continues(s, begin) && s.sorted.keys[begin] == token) return;
  float sum[1] = {0.0f};
  for (int64_t at = next; at < s.rows && s.sorted.keys[at] == token; at += kTileRows) {
    sum[0] += s.continued[at / kTileRows * s.width + column];
  }
  AddToTable(s, token, column, sum);
}

dim3 TileGrid(int64_t rows, int64_t columns_per_block, int64_t width) {
  return dim3(static_cast<unsigned>(NumTiles(rows)),
              static_cast<unsigned>(CeilDiv(width, columns_per_block)));
}

template <typename T, int kLanes>
cudaError_t QueueSegmentSums(const Segments<T>& s, cudaStream_t stream) {
  const LaunchConfig vectors{.grid = TileGrid(s.rows, int64_t{kThreads} * kLanes, s.width),
                             .block = dim3(kThreads),
                             .stream = stream};
  const cudaError_t error = Launch(EmbedTileSumsKernel<T, kLanes>, vectors, s);
  if (error != cudaSuccess) return error;
  const LaunchConfig columns{
      .grid = TileGrid(s.rows, kThreads, s.width), .block = dim3(kThreads), .stream = stream};
  return Launch(EmbedContinuedSumsKernel<T>, columns, s);
}

size_t RoundUp(size_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

template <typename T>
cudaError_t EmbedForward(T* y, const int32_t* tokens, const T* token_table, const T* position_table,
                         int64_t rows, int64_t context_tokens, int64_t width, int64_t vocabulary,
                         cudaStream_t stream) {
  const bool aligned =
      width % kVectorLanes<T> == 0 && AreVectorsAligned(y, token_table, position_table);
  return MapVectors<kVectorLanes<T>>(
      EmbedForwardOperation<T>{y, tokens, token_table, position_table, context_tokens, width,
                               vocabulary},
      rows * width, aligned, stream);
}

// The workspace has the memory for sorting, and then `continued`.
size_t EmbedBackwardWorkspaceBytes(int64_t rows, int64_t width) {
  return RoundUp(SortKeysWorkspaceBytes(rows)) + NumTiles(rows) * width * sizeof(float);
}

template <typename T>
cudaError_t EmbedBackward(float* dtoken_table, float* dposition_table, const T* dy,
                          const int32_t* tokens, int64_t rows, int64_t context_tokens,
                          int64_t width, int64_t vocabulary, void* workspace, cudaStream_t stream) {
  if (rows == 0 || width == 0) return cudaSuccess;
  constexpr int kLanes = kVectorLanes<T>;
  Segments<T> s{dtoken_table, nullptr, dy, {}, rows, width, static_cast<int32_t>(vocabulary)};
  s.continued = reinterpret_cast<float*>(static_cast<char*>(workspace) +
                                         RoundUp(SortKeysWorkspaceBytes(rows)));
  cudaError_t error = SortKeys(&s.sorted, tokens, rows, s.vocabulary, workspace, stream);
  if (error != cudaSuccess) return error;
  const bool aligned = width % kLanes == 0 && AreVectorsAligned(dy, dtoken_table, dposition_table);
  error = aligned ? QueueSegmentSums<T, kLanes>(s, stream) : QueueSegmentSums<T, 1>(s, stream);
  if (error != cudaSuccess) return error;
  return MapVectors<kLanes>(
      EmbedPositionsBackwardOperation<T>{dposition_table, dy, rows, context_tokens, width},
      context_tokens * width, aligned, stream);
}

template cudaError_t EmbedForward(float*, const int32_t*, const float*, const float*, int64_t,
                                  int64_t, int64_t, int64_t, cudaStream_t);
template cudaError_t EmbedForward(__nv_bfloat16*, const int32_t*, const __nv_bfloat16*,
                                  const __nv_bfloat16*, int64_t, int64_t, int64_t, int64_t,
                                  cudaStream_t);
template cudaError_t EmbedBackward(float*, float*, const float*, const int32_t*, int64_t, int64_t,
                                   int64_t, int64_t, void*, cudaStream_t);
template cudaError_t EmbedBackward(float*, float*, const __nv_bfloat16*, const int32_t*, int64_t,
                                   int64_t, int64_t, int64_t, void*, cudaStream_t);

}  // namespace lodestar::cuda
