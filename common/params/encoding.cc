// SPDX-License-Identifier: Apache-2.0

#include "common/params/encoding.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace lodestar::params {

int64_t ElementsIn(Encoding encoding, int64_t bytes, int64_t room) {
  // The rest of a vector need not fill its last block or, in int4, its last byte.
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
  std::vector<absl::string_view> allowed;
  for (const Encoding encoding : kAllEncodings) {
    if (EncodingName(encoding) == name) return encoding;
    if (allowed.empty() || allowed.back() != EncodingName(encoding)) {
      allowed.push_back(EncodingName(encoding));
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", name, " is unknown; allowed: ", absl::StrJoin(allowed, ", ")));
}

absl::string_view EncodingName(Encoding encoding) {
  return encoding.is_topk() ? "topk" : EncodingKindName(encoding.kind());
}

absl::string_view EncodingKindName(Encoding::Kind kind) {
  switch (kind) {
    case Encoding::Kind::kFp32:
      return "fp32";
    case Encoding::Kind::kBf16:
      return "bf16";
    case Encoding::Kind::kFp16:
      return "fp16";
    case Encoding::Kind::kInt8:
      return "int8";
    case Encoding::Kind::kInt4:
      return "int4";
    case Encoding::Kind::kTopK2:
      return "topk2";
    case Encoding::Kind::kTopK4:
      return "topk4";
  }
  return "unknown";
}

std::string EncodingText(Encoding encoding) {
  if (!encoding.is_topk()) return std::string(EncodingName(encoding));
  return absl::StrCat("topk(", encoding.topk(), ",", encoding.topk_bits(), ")");
}

absl::StatusOr<Encoding> ParseEncodingText(absl::string_view what, absl::string_view text) {
  for (const Encoding encoding : kAllEncodings) {
    if (!encoding.is_topk() && EncodingName(encoding) == text) return encoding;
  }
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "topk(") && absl::ConsumeSuffix(&rest, ")")) {
    const std::pair<absl::string_view, absl::string_view> numbers =
        absl::StrSplit(rest, absl::MaxSplits(',', 1));
    int64_t topk = 0;
    int64_t bits = 0;
    if (absl::SimpleAtoi(numbers.first, &topk) && absl::SimpleAtoi(numbers.second, &bits)) {
      return MakeTopK(topk, bits);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is '", text, "'; it must be the name of an encoding, or topk(K,BITS)"));
}

absl::StatusOr<Encoding> MakeTopK(int64_t topk, int64_t bits) {
  if (topk < 1 || topk > kMaxTopK) {
    return absl::InvalidArgumentError(
        absl::StrCat("--topk=", topk, " is out of range; allowed is 1 <= value <= ", kMaxTopK,
                     ", the elements that are sent of each ", kTopKBlock));
  }
  if (bits != 2 && bits != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("--topk_bits=", bits, " is unknown; allowed: 2, 4"));
  }
  return Encoding::TopK(static_cast<int>(topk), static_cast<int>(bits));
}

}  // namespace lodestar::params
