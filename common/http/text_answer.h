// The bytes of a whole answer of HTTP/1.1 with a text for people, where there is no request to
// answer but one that is refused. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace lodestar {

// `status`: "400 Bad Request". The connection ends with it.
std::string TextAnswer(absl::string_view status, absl::string_view text);

}  // namespace lodestar
