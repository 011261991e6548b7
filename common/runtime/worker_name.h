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

// Checks that `name` follows the rule above and has 1 to `max_bytes` bytes. Errors:
// InvalidArgument, which names `what`. The error does not repeat the name, because a peer may have
// sent it.
absl::Status CheckName(absl::string_view what, absl::string_view name, size_t max_bytes);

// Checks the name of a worker or a site with CheckName().
absl::Status CheckWorkerName(absl::string_view what, absl::string_view name);

// Checks like CheckName(), but allows any first character, because files of earlier releases may
// have such names.
absl::Status CheckRecordedName(absl::string_view what, absl::string_view name, size_t max_bytes);

// Returns `text` made into a name. '-' replaces each character that is not allowed. '.', '_' and
// '-' are removed from the beginning. The rest is cut to `max_bytes`. The result may be empty.
std::string NearestName(absl::string_view text, size_t max_bytes);

}  // namespace lodestar
