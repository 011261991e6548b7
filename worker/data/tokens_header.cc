#include "worker/data/tokens_header.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

struct KnownHeader {
  int32_t magic = 0;
  int32_t version = 0;
  TokensHeader header;
};

constexpr KnownHeader kKnown[] = {
    {20240520, 1, {"GPT-2", TokenWidth::kTwoBytes, 50257}},
    {20240801, 7, {"Llama 3", TokenWidth::kFourBytes, 128256}},
};

// Files of llm.c with a magic number that hold something else.
struct OtherFile {
  int32_t magic = 0;
  absl::string_view what;
};

constexpr OtherFile kOthers[] = {
    {20240522, "questions of an evaluation, not a corpus"},
    {20240326, "a model's weights"},
    {20240327, "a model's weights and activations"},
    {20240328, "a tokenizer"},
};

int32_t HeaderWord(absl::Span<const uint8_t> start, size_t index) {
  int32_t word;
  std::memcpy(&word, start.data() + index * sizeof(word), sizeof(word));
  return word;
}

}  // namespace

bool HasTokensHeader(absl::Span<const uint8_t> start) {
  if (start.size() < 3 * sizeof(int32_t)) return false;
  const int32_t magic = HeaderWord(start, 0);
  return std::any_of(std::begin(kKnown), std::end(kKnown),
                     [=](const KnownHeader& known) { return known.magic == magic; }) ||
         std::any_of(std::begin(kOthers), std::end(kOthers),
                     [=](const OtherFile& other) { return other.magic == magic; });
}

absl::StatusOr<TokensHeader> ParseTokensHeader(const std::string& path,
                                               absl::Span<const uint8_t> start, int64_t num_bytes) {
  const int32_t magic = HeaderWord(start, 0);
  for (const OtherFile& other : kOthers) {
    if (other.magic != magic) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": magic number ", magic, " at offset 0: llm.c writes it in front of ", other.what));
  }
  const KnownHeader& known =
      *std::find_if(std::begin(kKnown), std::end(kKnown),
                    [magic](const KnownHeader& candidate) { return candidate.magic == magic; });
  if (num_bytes < kTokensHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ends at offset ", num_bytes,
                                                   " inside its header of ", kTokensHeaderBytes,
                                                   " bytes"));
  }
  const int64_t token_bytes = WidthBytes(known.header.width);
  if (HeaderWord(start, 1) != known.version) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": header version ", HeaderWord(start, 1), " at offset 4, only ", known.version,
        " (uint", 8 * token_bytes, " tokens of ", known.header.tokenizer, ") is known"));
  }
  const int64_t num_tokens = HeaderWord(start, 2);
  const int64_t wanted_bytes = kTokensHeaderBytes + num_tokens * token_bytes;
  if (num_tokens < 0 || wanted_bytes != num_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the header at offset 8 tells ", num_tokens, " tokens of ",
                     token_bytes, " bytes, that is ", wanted_bytes, " bytes, but the file has ",
                     num_bytes, "; copy or make it again"));
  }
  return known.header;
}

}  // namespace lodestar
