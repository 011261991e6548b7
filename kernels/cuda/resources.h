// Owners of what the CUDA runtime and cuBLASLt hand out. Failures to give something back are not
// reported: nothing is left to be done about them.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

namespace lodestar::cuda {

// Calls a function of the C API.
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

// Makes one: create(&handle) returns an error code. Null on failure.
template <typename Resource, typename Create>
auto Make(Resource* resource, Create create) {
  typename Resource::pointer handle = nullptr;
  const auto error = create(&handle);
  resource->reset(handle);
  return error;
}

}  // namespace lodestar::cuda
