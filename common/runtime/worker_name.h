// What workers, sites and identities may be called: letters, digits, '.', '_' and '-', of which the
// first is a letter or a digit. Such a name is no flag on a command line and no path in a folder.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar {

inline constexpr size_t kMaxWorkerNameBytes = 64;

// Returns InvalidArgument, which names `what`, if `name` breaks the rule above or has 0 or more
// than `max_bytes` bytes. The error does not repeat the name, because a peer may have sent it.
absl::Status CheckName(absl::string_view what, absl::string_view name, size_t max_bytes);

// CheckName() of a worker or a site.
absl::Status CheckWorkerName(absl::string_view what, absl::string_view name);

// CheckName() without the rule for the first character, which files of earlier releases may break.
absl::Status CheckRecordedName(absl::string_view what, absl::string_view name, size_t max_bytes);

// Returns `text` with '-' for each character that a name may not have, without leading '.', '_' and
// '-', and cut to `max_bytes`. The result may be empty.
std::string NearestName(absl::string_view text, size_t max_bytes);

}  // namespace lodestar
