#include "common/encoding.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lodestar {

int64_t ElementsIn(Encoding encoding, int64_t bytes, int64_t room) {
  // The last one of an odd number of int4 takes as much as two.
  if (bytes == EncodedBytes(encoding, room)) return room;
  const int64_t block = BlockElements(encoding);
  const int64_t block_bytes = EncodedBytes(encoding, block);
  const int64_t elements = bytes / block_bytes * block;
  return bytes >= 0 && bytes % block_bytes == 0 && elements <= room ? elements : -1;
}

int64_t ChunkElements(Encoding encoding, int64_t bytes) {
  const int64_t block = BlockElements(encoding);
  return std::max<int64_t>(bytes / EncodedBytes(encoding, block), 1) * block;
}

int64_t ChangesKept(Encoding encoding, int64_t elements) {
  if (elements == 0) return 1;
  const int64_t whole = EncodedBytes(Encoding::kFp32, elements);
  return std::max<int64_t>((whole - 1) / EncodedBytes(encoding, elements), 1);
}

absl::StatusOr<Encoding> ParseEncoding(absl::string_view flag, absl::string_view name) {
  for (Encoding encoding : kAllEncodings) {
    if (EncodingName(encoding) == name) return encoding;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", name, " is unknown; allowed: ",
                   absl::StrJoin(kAllEncodings, ", ", [](std::string* out, Encoding encoding) {
                     absl::StrAppend(out, EncodingName(encoding));
                   })));
}

absl::string_view EncodingName(Encoding encoding) {
  switch (encoding) {
    case Encoding::kFp32:
      return "fp32";
    case Encoding::kBf16:
      return "bf16";
    case Encoding::kFp16:
      return "fp16";
    case Encoding::kInt8:
      return "int8";
    case Encoding::kInt4:
      return "int4";
  }
  return "unknown";
}

}  // namespace lodestar
