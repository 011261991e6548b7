// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/errors.h"

#include <string_view>

#include "absl/strings/str_cat.h"

namespace lodestar::cuda {
namespace {

std::string Place(const std::source_location& where) {
  const std::string_view path = where.file_name();
  const size_t slash = path.rfind('/');
  return absl::StrCat(std::string(slash == path.npos ? path : path.substr(slash + 1)), ":",
                      where.line());
}

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status CudaStatus(const std::string& device, cudaError_t error, const char* call,
                        std::source_location where) {
  if (error == cudaSuccess) return absl::OkStatus();
  // Clears the error in the runtime, because the caller gets it as a status. Otherwise other users
  // of CUDA in this process would get it.
  cudaGetLastError();
  const absl::StatusCode code = CodeOf(error);
  const char* hint = code == absl::StatusCode::kUnavailable
                         ? "; does nvidia-smi show the card, and a driver for this CUDA version?"
                         : "";
  return absl::Status(code, absl::StrCat(device, ": ", call, " at ", Place(where),
                                         " failed: ", cudaGetErrorName(error), ": ",
                                         cudaGetErrorString(error), hint));
}

bool Errors::Check(cudaError_t error, const char* call, std::source_location where) {
  if (error == cudaSuccess) return true;
  Note(CudaStatus(device_, error, call, where));
  return false;
}

bool Errors::Check(cublasStatus_t status, const char* call, std::source_location where) {
  if (status == CUBLAS_STATUS_SUCCESS) return true;
  Note(absl::InternalError(absl::StrCat(device_, ": ", call, " at ", Place(where),
                                        " failed: ", cublasLtGetStatusString(status))));
  return false;
}

void Errors::Note(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  if (first_.ok()) first_ = status;
}

absl::Status Errors::first() const {
  const std::lock_guard lock(mutex_);
  return first_;
}

}  // namespace lodestar::cuda
