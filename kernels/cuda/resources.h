// SPDX-License-Identifier: Apache-2.0

// Classes that own handles of the CUDA runtime and cuBLASLt. If a handle cannot be released, no
// error is reported, because a caller could not do anything about it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

namespace lodestar::cuda {

// Releases a handle by a function of the C API.
template <auto kRelease>
struct Releaser {
  template <typename T>
  void operator()(T* handle) const {
    kRelease(handle);
  }
};

template <typename Handle, auto kRelease>
using Owner = std::unique_ptr<std::remove_pointer_t<Handle>, Releaser<kRelease>>;

using Stream = Owner<cudaStream_t, cudaStreamDestroy>;
using Event = Owner<cudaEvent_t, cudaEventDestroy>;
using Graph = Owner<cudaGraph_t, cudaGraphDestroy>;
using GraphExecutable = Owner<cudaGraphExec_t, cudaGraphExecDestroy>;
using DeviceMemory = Owner<void*, cudaFree>;

using MatMulHandle = Owner<cublasLtHandle_t, cublasLtDestroy>;
using MatMulDescription = Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using MatMulPreference = Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// Makes a handle by create(&handle), and returns the error code of that call. On failure, *resource
// is null.
template <typename Resource, typename Create>
auto Make(Resource* resource, Create create) {
  typename Resource::pointer handle = nullptr;
  const auto error = create(&handle);
  resource->reset(handle);
  return error;
}

}  // namespace lodestar::cuda
