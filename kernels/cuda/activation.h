// Bias and activation functions, forward and backward, one pass over memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/operation_arguments.h"

namespace lodestar::cuda {

// T: float, __nv_bfloat16; computed in fp32. No alignment is required; 16-byte aligned pointers
// and a multiple of 16 bytes per row are faster.

// y [rows, columns] = act(y + bias); bias [columns] may be null. y + bias, rounded, is kept in
// pre_activation [rows, columns] (may be null), and y is the function of the rounded value:
// Activate() of it gives the same bits.
template <typename T>
cudaError_t BiasActivation(T* y, T* pre_activation, const T* bias, int64_t rows, int64_t columns,
                           kernels::Activation activation, cudaStream_t stream);

// dy [n] *= act'(pre_activation [n])
template <typename T>
cudaError_t ActivationBackward(T* dy, const T* pre_activation, int64_t n,
                               kernels::Activation activation, cudaStream_t stream);

// The same of dy and pre_activation [rows, columns], and column_sums [columns] (fp32) = the sums
// over rows of the new dy, or += with `add`: the bits of ActivationBackward() and ColumnSums(),
// with one pass over memory less. Any activation but kNone. workspace:
// ColumnSumsWorkspaceBytes(rows, columns). column_sums null: as for ColumnSums().
template <typename T>
cudaError_t ActivationBackwardWithSums(T* dy, float* column_sums, const T* pre_activation,
                                       int64_t rows, int64_t columns,
                                       kernels::Activation activation, bool add, void* workspace,
                                       cudaStream_t stream);

// y [n] = act(x [n]); y may be x.
template <typename T>
cudaError_t Activate(T* y, const T* x, int64_t n, kernels::Activation activation,
                     cudaStream_t stream);

}  // namespace lodestar::cuda
