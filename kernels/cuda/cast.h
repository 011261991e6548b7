// Conversion between floating types.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lodestar::cuda {

// y [n] = scale * x [n], between any two of float, double, __nv_bfloat16, __half: computed in fp32,
// or in fp64 where one of the two is double, and rounded once to nearest even. y must not overlap x
// unless it is x.
template <typename To, typename From>
cudaError_t Cast(To* y, const From* x, double scale, int64_t n, cudaStream_t stream);

}  // namespace lodestar::cuda
