// Text that a peer or a file has brought, for log, status, messages and terminal.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace lodestar {

// The UTF-8 byte order mark, with which some editors begin a file.
inline constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";

// How much of a name or a value a message shows, if nothing else is said.
inline constexpr size_t kMaxPeerTextBytes = 200;

// `text` without anything that a terminal, a log or a reader could be deceived with: controls and
// line ends, characters that turn the direction of writing, and bytes that are not UTF-8 are
// written as "\x1b", "\n" or "\u202e". At most `max_bytes` of `text`, in whole characters; of
// longer ones "..." tells. What has passed once passes again unchanged, except for its length.
std::string PeerText(absl::string_view text, size_t max_bytes = kMaxPeerTextBytes);

// A message of one or more lines, each as PeerText() has it, with at most `max_line_bytes`: what a
// program prints in the end, whose paths and names may be anybody's.
std::string PeerLines(absl::string_view text, size_t max_line_bytes = 16 << 10);

// Whether messages may carry it as text.
bool IsUtf8(absl::string_view text);

}  // namespace lodestar
