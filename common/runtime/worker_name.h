// SPDX-License-Identifier: Apache-2.0

// Names that workers, sites and identities may have: letters, digits, '.', '_' and '-', beginning
// with a letter or a digit. So a name cannot be taken for a flag on a command line or for a path
// such as "..".
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar {

inline constexpr size_t kMaxWorkerNameBytes = 64;

// Checks that `name` follows the rule at the beginning of this file and has 1 to `max_bytes` bytes.
// Errors: InvalidArgument, which names `what`. The error does not repeat the name, because a peer
// may have sent it.
absl::Status CheckName(absl::string_view what, absl::string_view name, size_t max_bytes);

// Checks the name of a worker or a site with CheckName(). The maximum is kMaxWorkerNameBytes.
absl::Status CheckWorkerName(absl::string_view what, absl::string_view name);

// Does the same as CheckName(), but also allows '.', '_' and '-' as the first character. Files of
// earlier releases may have such names.
absl::Status CheckRecordedName(absl::string_view what, absl::string_view name, size_t max_bytes);

// Makes a name from `text`, which may be empty afterwards:
// - Each character that a name cannot have becomes '-'.
// - Each '.', '_' and '-' at the beginning is removed.
// - What is longer than `max_bytes` is cut off.
std::string NearestName(absl::string_view text, size_t max_bytes);

}  // namespace lodestar
