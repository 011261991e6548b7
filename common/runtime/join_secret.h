// Keeps the secrets of join strings (common/security/join_string.h) out of messages. Join strings
// arrive in flags, variables and files that are meant for something else, and errors quote them.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace lodestar {

// How the base64 of every join string begins, as Secrets of Kubernetes have it.
inline constexpr absl::string_view kJoinStringInBase64 = "bG9kZXN0YXI6";

// Returns true if `text` holds a join string or the part of one that has the secret, damaged or
// not, or its base64. Such a text is neither a path nor an address.
bool HasJoinString(absl::string_view text);

// Returns `text` with "..." in place of what stands behind the host of each join string, up to the
// next space, quote or end. A text without a join string comes back unchanged.
std::string WithoutJoinSecrets(absl::string_view text);

}  // namespace lodestar
