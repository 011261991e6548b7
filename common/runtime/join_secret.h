// SPDX-License-Identifier: Apache-2.0

// Keeps the secrets of join strings (common/security/join_string.h) out of messages. Users put join
// strings by mistake into flags, variables and files that are meant for something else, and errors
// quote their content.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace lodestar {

// Beginning of the base64 of every join string. Kubernetes writes Secrets in base64.
inline constexpr absl::string_view kJoinStringInBase64 = "bG9kZXN0YXI6";

// Returns true if `text` holds a join string, the part of a join string that has the secret, or the
// base64 of either, even if damaged. A text with a join string is neither a path nor an address.
bool HasJoinString(absl::string_view text);

// Returns `text` with "..." in place of everything behind the host of each join string, up to the
// next space, quote or end. A text without a join string comes back unchanged.
std::string WithoutJoinSecrets(absl::string_view text);

}  // namespace lodestar
