// Sums over vectors and over columns of matrices. Two stages, no atomics: the order, and so the
// result, depends on the shape only.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace lodestar::cuda {

// Workspaces are device memory that is free again when the launched kernels are done, 16-byte
// aligned.
size_t SumOfSquaresWorkspaceBytes(int64_t n);
// sum [1] = sum of the squares of x [n], added in f64.
cudaError_t SumOfSquares(double* sum, const float* x, int64_t n, void* workspace,
                         cudaStream_t stream);

size_t ColumnSumsWorkspaceBytes(int64_t rows, int64_t columns);
// out [columns] = sums over the rows of x [rows, columns], or += with `add`; in fp32. T: float,
// __nv_bfloat16. out null: as far as partial sums in the workspace, for CombineColumnSums().
template <typename T>
cudaError_t ColumnSums(float* out, const T* x, int64_t rows, int64_t columns, bool add,
                       void* workspace, cudaStream_t stream);

// What ColumnSums(), or another that makes partial sums alike, has left out.
cudaError_t CombineColumnSums(float* out, int64_t rows, int64_t columns, bool add,
                              const void* workspace, cudaStream_t stream);

size_t RowSumsWorkspaceBytes(int64_t rows, int64_t columns);
// out [rows] = sums over the columns of x [rows, columns], or += with `add`; in fp32. rows < 2^16.
// T: float, __nv_bfloat16.
template <typename T>
cudaError_t RowSums(float* out, const T* x, int64_t rows, int64_t columns, bool add,
                    void* workspace, cudaStream_t stream);

// The second stage: out [columns] = sums over the parts of partials [parts, columns], or += with
// `add`.
cudaError_t CombinePartials(float* out, const float* partials, int64_t parts, int64_t columns,
                            bool add, cudaStream_t stream);
// The same for two outputs [columns]; partials [parts, 2, columns].
cudaError_t CombinePartialPairs(float* first, float* second, const float* partials, int64_t parts,
                                int64_t columns, bool add, cudaStream_t stream);

}  // namespace lodestar::cuda
