// SPDX-License-Identifier: Apache-2.0

#include "common/storage/file_kind.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/runtime/peer_text.h"

namespace lodestar::storage {
namespace {

struct Magic {
  absl::string_view bytes;
  absl::string_view kind;
  size_t offset = 0;
};

// Returns the whole literal, including zero bytes, as a string view.
template <size_t kSize>
constexpr absl::string_view Bytes(const char (&literal)[kSize]) {
  return absl::string_view(literal, kSize - 1);
}

constexpr Magic kMagics[] = {
    {Bytes("\x1f\x8b"), "gzip data"},
    {Bytes("\x28\xb5\x2f\xfd"), "Zstandard data"},
    {Bytes("\xfd"
           "7zXZ\0"),
     "xz data"},
    {Bytes("\x04\x22\x4d\x18"), "LZ4 data"},
    {Bytes("BZh91AY&SY"), "bzip2 data"},
    {Bytes("7z\xbc\xaf\x27\x1c"), "a 7-Zip archive"},
    {Bytes("PK\x03\x04"), "a ZIP archive (also .docx, .npz and PyTorch's .pt)"},
    {Bytes("ustar"), "a tar archive", 257},
    {Bytes("%PDF-"), "a PDF document"},
    {Bytes("\x89PNG\r\n\x1a\n"), "a PNG image"},
    {Bytes("\xff\xd8\xff"), "a JPEG image"},
    {Bytes("GIF87a"), "a GIF image"},
    {Bytes("GIF89a"), "a GIF image"},
    {Bytes("\x7f"
           "ELF"),
     "an ELF program"},
    {Bytes("PAR1\x15"), "a Parquet table"},
    {Bytes("ARROW1\0"), "an Arrow table"},
    {Bytes("\x89HDF\r\n\x1a\n"), "HDF5 data"},
    {Bytes("SQLite format 3\0"), "an SQLite database"},
    {Bytes("\0\0\x08\x03"), "IDX images"},
    {Bytes("\0\0\x08\x01"), "IDX labels"},
    // Little-endian UTF-32 begins like UTF-16, so it is checked first.
    {Bytes("\xff\xfe\0\0"), "UTF-32 text"},
    {Bytes("\0\0\xfe\xff"), "UTF-32 text"},
    {Bytes("\xff\xfe"), "UTF-16 text"},
    {Bytes("\xfe\xff"), "UTF-16 text"},
};

// Returns true for bytes that do not occur in text. Tabs, line ends, form feeds, backspaces, and
// the escape byte (for terminals or Japanese) may occur in text.
bool IsControl(uint8_t byte) {
  return (byte < 0x20 && (byte < 0x08 || byte > 0x0d) && byte != 0x1b) || byte == 0x7f;
}

}  // namespace

absl::string_view KindByMagic(absl::Span<const uint8_t> start) {
  const auto match = std::find_if(std::begin(kMagics), std::end(kMagics), [&](const Magic& magic) {
    return start.size() >= magic.offset + magic.bytes.size() &&
           std::memcmp(start.data() + magic.offset, magic.bytes.data(), magic.bytes.size()) == 0;
  });
  return match == std::end(kMagics) ? "" : match->kind;
}

std::string KindInWords(absl::Span<const uint8_t> start) {
  if (start.empty()) return "empty";
  if (const absl::string_view kind = KindByMagic(start); !kind.empty()) return std::string(kind);
  absl::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  absl::ConsumePrefix(&text, kByteOrderMark);
  text = absl::StripLeadingAsciiWhitespace(text);
  for (const absl::string_view begin : {"<!doctype html", "<html"}) {
    if (absl::StartsWithIgnoreCase(text, begin)) return "an HTML page";
  }
  return WhyNoText(start, 0).empty() ? "text" : "of an unknown kind";
}

std::string WhyNoText(absl::Span<const uint8_t> part, int64_t offset) {
  // Maximum percentage of zero bytes and control codes in a text. Random bytes have about 10 %.
  constexpr size_t kMostPerHundred = 2;
  const size_t count = std::count_if(part.begin(), part.end(), IsControl);
  if (count * 100 <= part.size() * kMostPerHundred) return "";
  return absl::StrCat((count * 100 + part.size() - 1) / part.size(), " % of the bytes from offset ",
                      offset, " are zero or control codes");
}

}  // namespace lodestar::storage
