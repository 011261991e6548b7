// SPDX-License-Identifier: Apache-2.0

// Makes a whole HTTP/1.1 answer with a text, for a request that is refused before it is parsed.
// Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace lodestar::http {

// Returns the bytes of the answer. `status` is text such as "400 Bad Request". The answer tells the
// client that the connection closes.
std::string TextAnswer(absl::string_view status, absl::string_view text);

}  // namespace lodestar::http
