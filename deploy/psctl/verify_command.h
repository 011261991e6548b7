// psctl verify: reads checkpoints whole and compares them with their manifests, without a server.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/storage/file_system.h"

namespace lodestar {

// `paths`: checkpoints (round-...), and folders of checkpoints, of which all are looked at, also
// those that a server has set aside; only what was never finished, and what a server removes
// meanwhile, is left out, and said to be. `say` gets one line, without its end, as soon as a
// checkpoint has been read. Blocks for the disk. Errors: the first of `say`, which ends it;
// NotFound if a path is no checkpoint and has none in it; DataLoss with the number of those that do
// not verify.
absl::Status VerifyCheckpoints(FileSystem& file_system, absl::Span<const std::string> paths,
                               absl::FunctionRef<absl::Status(absl::string_view line)> say);

}  // namespace lodestar
