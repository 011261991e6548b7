// SPDX-License-Identifier: Apache-2.0

// Makes text from a peer or a file safe to show in logs, status, messages and terminals.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace lodestar {

// The UTF-8 byte order mark, which some editors put at the beginning of a file.
inline constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";

// Default maximum number of bytes that a message shows of a name or a value.
inline constexpr size_t kMaxPeerTextBytes = 200;

// Returns `text` without anything that could deceive a terminal, a log or a reader:
// - Controls, line ends, characters that change the direction of writing, and bytes that are not
//   UTF-8 are written as "\x1b", "\n" or "\u202e".
// - At most `max_bytes` of `text` are used, in whole characters. If `text` is cut, "..." marks the
//   end.
//
// If the result is passed to PeerText() again, it does not change, except that it may be cut.
std::string PeerText(absl::string_view text, size_t max_bytes = kMaxPeerTextBytes);

// Applies PeerText() to each line of a message, with at most `max_line_bytes` per line. For
// messages that a program prints before it ends, because they may contain paths and names of
// unknown origin.
std::string PeerLines(absl::string_view text, size_t max_line_bytes = 16 << 10);

// Returns true if `text` is valid UTF-8, so that protocol buffers can carry it as a string.
bool IsUtf8(absl::string_view text);

}  // namespace lodestar
