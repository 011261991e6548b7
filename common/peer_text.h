// Text of somebody else, for log, status and terminal.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace lodestar {

// `text` without anything that a terminal, a log or a reader could be deceived with: controls and
// line ends, characters that turn the direction of writing, and bytes that are not UTF-8 are
// written as "\x1b", "\n" or "\u202e". At most `max_bytes` of `text`, in whole characters; of
// longer ones "..." tells. What has passed once passes again unchanged, except for its length.
std::string PeerText(absl::string_view text, size_t max_bytes);

// Whether messages may carry it as text.
bool IsUtf8(absl::string_view text);

}  // namespace lodestar
