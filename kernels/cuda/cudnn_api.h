// cuDNN's functions, of a library that is found when a process asks for it, and never linked: it is
// half a gigabyte, and only attention is done with it.
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

// Loads libcudnn.so.9 from where libraries are searched, else from a Python environment on the
// PATH. It is never unloaded. Errors: NotFound with what was tried; Unimplemented for a version
// that is too old.
absl::StatusOr<std::shared_ptr<const CudnnApi>> LoadCudnn();

// "cuDNN 9.19.0".
std::string CudnnName(const CudnnApi& api);

// "finalize engine: CUDNN_STATUS_X: why". Errors: Unimplemented for what cuDNN does not support,
// else Internal.
absl::Status CudnnStatus(const CudnnApi& api, cudnnStatus_t status, const char* call);

}  // namespace lodestar::cuda
