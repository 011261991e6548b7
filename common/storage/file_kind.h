// SPDX-License-Identifier: Apache-2.0

// Recognises the kind of a file from its bytes. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lodestar::storage {

// Returns "gzip data", "a PNG image", "UTF-16 text" and so on for a file that begins with `start`.
// Empty means that `start` shows no known kind.
absl::string_view KindByMagic(absl::Span<const uint8_t> start);

// Returns the kind of a file that begins with `start`, for a message: KindByMagic(), "an HTML
// page", "text", "empty", or "of no kind that is known here".
std::string KindInWords(absl::Span<const uint8_t> start);

// Returns why a part of a file is not text, such as "35 % of the bytes from offset 0 are zero or
// control codes". Empty means that the part may be text. Text may have any encoding that includes
// ASCII, such as UTF-8, Latin-1 or Shift-JIS. `offset` is the position of the part in its file.
std::string WhyNoText(absl::Span<const uint8_t> part, int64_t offset);

}  // namespace lodestar::storage
