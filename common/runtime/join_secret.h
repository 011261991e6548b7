// SPDX-License-Identifier: Apache-2.0

// Keeps the secrets of join strings (common/security/join_string.h) out of messages. Users may put
// a join string by mistake into another flag, variable or file, whose content an error then quotes.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace lodestar {

// Beginning of the base64 of every join string. Kubernetes writes Secrets in base64.
inline constexpr absl::string_view kJoinStringInBase64 = "bG9kZXN0YXI6";

// Returns true if `text` holds a join string, the base64 of a join string, or only the part with
// the secret. Damaged ones count too. Such a text is neither a path nor an address.
bool HasJoinString(absl::string_view text);

// Returns `text` with "..." in place of each secret that HasJoinString() finds, up to the next
// space, quote or end. The scheme and the host of a join string stay.
std::string WithoutJoinSecrets(absl::string_view text);

}  // namespace lodestar
