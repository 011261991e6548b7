// Which library has attention for the present CUDA device: cuDNN, where the plugin was built with
// its headers and the machine has it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/attention_library.h"

namespace lodestar::cuda {

// Errors: why there is none, with what was tried.
absl::StatusOr<std::unique_ptr<AttentionLibrary>> LoadAttentionLibrary();

}  // namespace lodestar::cuda
