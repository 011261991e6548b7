// SPDX-License-Identifier: Apache-2.0

// Bias and activation functions, forward and backward. Each function reads and writes memory once.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/operation_arguments.h"

namespace lodestar::cuda {

// In the functions below, T is float or __nv_bfloat16. Results are computed in fp32. No alignment
// is required. The functions are faster if pointers and the sizes of rows are multiples of 16
// bytes.

// Computes y [rows, columns] = act(y + bias). If bias [columns] is null, there is no bias. If
// pre_activation [rows, columns] is not null, it is set to y + bias, rounded to T. y is computed
// from the rounded values, so that Activate() of pre_activation gives the same bits.
template <typename T>
cudaError_t BiasActivation(T* y, T* pre_activation, const T* bias, int64_t rows, int64_t columns,
                           kernels::Activation activation, cudaStream_t stream);

// Computes dy [n] *= act'(pre_activation [n]).
template <typename T>
cudaError_t ActivationBackward(T* dy, const T* pre_activation, int64_t n,
                               kernels::Activation activation, cudaStream_t stream);

// Does the same as ActivationBackward() for dy [rows, columns] and then ColumnSums() of dy, with
// the same bits. Reads and writes memory once less.
// - column_sums [columns] (fp32) is set to the sums. With `add`, the sums are added to it. If it is
//   null, the partial sums stay in the workspace, as with ColumnSums().
// - `workspace` has ColumnSumsWorkspaceBytes(rows, columns).
// - `activation` must not be kNone.
template <typename T>
cudaError_t ActivationBackwardWithSums(T* dy, float* column_sums, const T* pre_activation,
                                       int64_t rows, int64_t columns,
                                       kernels::Activation activation, bool add, void* workspace,
                                       cudaStream_t stream);

// Computes y [n] = act(x [n]). y may be x.
template <typename T>
cudaError_t Activate(T* y, const T* x, int64_t n, kernels::Activation activation,
                     cudaStream_t stream);

}  // namespace lodestar::cuda
