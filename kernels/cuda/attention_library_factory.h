// SPDX-License-Identifier: Apache-2.0

// Loads the attention library for the current CUDA device. The library is cuDNN, if the plugin was
// built with cuDNN's headers and cuDNN is installed.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/attention_library.h"

namespace lodestar::cuda {

// Returns the library. Errors: the reason why there is no library, with the paths that were tried.
absl::StatusOr<std::unique_ptr<AttentionLibrary>> LoadAttentionLibrary();

}  // namespace lodestar::cuda
