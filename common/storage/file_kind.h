// What the bytes of a file say that it is. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lodestar {

// "gzip data", "a PNG image", "UTF-16 text" for a file that starts so; empty if the start says
// nothing.
absl::string_view KindByMagic(absl::Span<const uint8_t> start);

// What a file that starts so is, for a message: KindByMagic(), "an HTML page", "text", "empty", or
// "of no kind that is known here".
std::string KindInWords(absl::Span<const uint8_t> start);

// Why a part of a file is not text in any encoding that has ASCII in it (UTF-8, Latin-1, Shift-JIS,
// ...): "35 % of the bytes from offset 0 are zero or control codes". Empty if it may be text.
// `offset`: of the part in its file.
std::string WhyNoText(absl::Span<const uint8_t> part, int64_t offset);

}  // namespace lodestar
