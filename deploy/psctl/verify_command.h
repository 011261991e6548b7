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

// Verifies `paths`: checkpoints (round-...) and folders of checkpoints. In a folder, all
// checkpoints are verified, including abandoned and replaced ones. A checkpoint that was never
// finished, or that a server removes meanwhile, is reported and does not count. `say` gets one
// line, without line end, as soon as a checkpoint has been read. Blocks for the disk. Errors: the
// first of `say`, which ends the verification; NotFound (a path is neither a checkpoint nor a
// folder with checkpoints); DataLoss (checkpoints do not verify), with their number.
absl::Status VerifyCheckpoints(storage::FileSystem& file_system,
                               absl::Span<const std::string> paths,
                               absl::FunctionRef<absl::Status(absl::string_view line)> say);

}  // namespace lodestar::psctl
