// SPDX-License-Identifier: Apache-2.0

// psctl verify reads whole checkpoints and compares them with their manifests. No server is needed.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/storage/file_system.h"

namespace lodestar::psctl {

// Verifies `paths`, which are checkpoints (round-...) and folders of checkpoints. In a folder,
// verifies all checkpoints, including abandoned and replaced ones. A checkpoint that was never
// finished is only reported. So is one that a server removes meanwhile. Calls `say` with one line,
// without line end, after each checkpoint. Blocks for the disk. Errors:
// - The first error of `say`, which ends the verification.
// - NotFound: a path is neither a checkpoint nor a folder with checkpoints.
// - DataLoss: some checkpoints do not verify. The error says how many.
absl::Status VerifyCheckpoints(storage::FileSystem& file_system,
                               absl::Span<const std::string> paths,
                               absl::FunctionRef<absl::Status(absl::string_view line)> say);

}  // namespace lodestar::psctl
