// What a worker, or a site, may be called: 1 to 64 letters, digits, '.', '_', '-'.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar {

inline constexpr size_t kMaxWorkerNameBytes = 64;

// Errors: InvalidArgument, naming `what`, what is wrong with it and what is allowed; without the
// name, which may be a peer's.
absl::Status CheckWorkerName(absl::string_view what, absl::string_view name);

}  // namespace lodestar
