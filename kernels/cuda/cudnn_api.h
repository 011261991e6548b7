// SPDX-License-Identifier: Apache-2.0

// Loads cuDNN's functions when a process first needs them. The plugin is not linked with cuDNN,
// because the library is half a gigabyte large and only attention uses it.
#pragma once

#include <cudnn_graph.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lodestar::cuda {

struct CudnnApi {
  decltype(&cudnnGetVersion) get_version;
  decltype(&cudnnGetErrorString) get_error_string;
  decltype(&cudnnGetLastErrorString) get_last_error_string;
  decltype(&cudnnCreate) create;
  decltype(&cudnnDestroy) destroy;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendSetAttribute) set_attribute;
  decltype(&cudnnBackendGetAttribute) get_attribute;
  decltype(&cudnnBackendExecute) execute;
};

// Loads libcudnn.so.9 from the paths of the dynamic linker. If it is not found there, loads it from
// a Python environment on the PATH. The library is never unloaded. Errors: NotFound (with the paths
// that were tried); Unimplemented (the version is too old).
absl::StatusOr<std::shared_ptr<const CudnnApi>> LoadCudnn();

// Returns name and version, such as "cuDNN 9.19.0".
std::string CudnnName(const CudnnApi& api);

// Returns OK if `status` is success. Otherwise the message is such as "finalize engine:
// CUDNN_STATUS_X: why", where `call` is the first part. Errors: Unimplemented (cuDNN does not
// support the call); Internal.
absl::Status CudnnStatus(const CudnnApi& api, cudnnStatus_t status, const char* call);

}  // namespace lodestar::cuda
