// SPDX-License-Identifier: Apache-2.0

// Sums over vectors, and over rows and columns of matrices. Each sum has two stages and uses no
// atomics. Its order depends only on the shape, so equal inputs give equal bits.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace lodestar::cuda {

// All workspaces are device memory, 16-byte aligned. A workspace may be reused when the queued
// kernels have run.
size_t SumOfSquaresWorkspaceBytes(int64_t n);
// Sets sum [1] to the sum of the squares of x [n], in fp64.
cudaError_t SumOfSquares(double* sum, const float* x, int64_t n, void* workspace,
                         cudaStream_t stream);

size_t ColumnSumsWorkspaceBytes(int64_t rows, int64_t columns);
// Sets out [columns] to the sums over the rows of x [rows, columns], in fp32. With `add`, adds them
// to `out`. T is float or __nv_bfloat16. If `out` is null, the partial sums stay in the workspace
// for CombineColumnSums().
template <typename T>
cudaError_t ColumnSums(float* out, const T* x, int64_t rows, int64_t columns, bool add,
                       void* workspace, cudaStream_t stream);

// Sets out [columns] to the column sums whose partial sums are in the workspace. ColumnSums() with
// a null `out`, or another function, has stored them there. With `add`, adds the sums to `out`.
cudaError_t CombineColumnSums(float* out, int64_t rows, int64_t columns, bool add,
                              const void* workspace, cudaStream_t stream);

size_t RowSumsWorkspaceBytes(int64_t rows, int64_t columns);
// Sets out [rows] to the sums over the columns of x [rows, columns], in fp32. With `add`, adds them
// to `out`. rows < 2^16. T is float or __nv_bfloat16.
template <typename T>
cudaError_t RowSums(float* out, const T* x, int64_t rows, int64_t columns, bool add,
                    void* workspace, cudaStream_t stream);

// Sets out [columns] to the sums over the rows of partials [parts, columns]. With `add`, adds the
// sums to `out`. This is the second stage of a sum.
cudaError_t CombinePartials(float* out, const float* partials, int64_t parts, int64_t columns,
                            bool add, cudaStream_t stream);
// Does the same as CombinePartials() for two outputs [columns] with partials [parts, 2, columns].
cudaError_t CombinePartialPairs(float* first, float* second, const float* partials, int64_t parts,
                                int64_t columns, bool add, cudaStream_t stream);

}  // namespace lodestar::cuda
