// SPDX-License-Identifier: Apache-2.0

// Defines LoadAttentionLibrary() for plugins that are built without cuDNN's headers.
#include "absl/status/status.h"
#include "kernels/cuda/attention_library_factory.h"

namespace lodestar::cuda {

absl::StatusOr<std::unique_ptr<AttentionLibrary>> LoadAttentionLibrary() {
  return absl::UnimplementedError("the CUDA plugin was built without cuDNN's headers");
}

}  // namespace lodestar::cuda
