#include "worker/data/tokens_reader.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/token_corpus.h"
#include "worker/data/tokens_header.h"

namespace lodestar {
namespace {

constexpr int64_t kMaxUint16 = 65535;
// Vocabularies are rounded up to sizes that a card likes.
constexpr int64_t kMostPaddedVocabulary = 1024;

std::string WidthText(int64_t token_bytes) { return absl::StrCat("uint", 8 * token_bytes); }

absl::StatusOr<std::optional<TokensHeader>> ReadHeader(const DataFile& file) {
  std::vector<uint8_t> start(std::min(kTokensHeaderBytes, file.num_bytes()));
  RETURN_IF_ERROR(file.Read(0, absl::MakeSpan(start)));
  if (!HasTokensHeader(start)) return std::nullopt;
  return ParseTokensHeader(file.path(), start, file.num_bytes());
}

// Takes the width over from a header, unless it is known to be another.
absl::Status TakeWidth(const TokenFile& file, const TokensHeader& header, const DataConfig& config,
                       TokensSource* source) {
  const int64_t token_bytes = WidthBytes(header.width);
  if (source->token_bytes == 0) source->token_bytes = token_bytes;
  if (source->token_bytes == token_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      file.file->path(), ": its header says ", WidthText(token_bytes), " tokens of ",
      header.tokenizer, ", but ",
      config.token_bytes != 0 ? absl::StrCat("--token_bytes=", config.token_bytes)
                              : absl::StrCat("other files have ", WidthText(source->token_bytes)),
      "; give data of one kind"));
}

absl::Status CheckWholeTokens(const TokenCorpus& corpus, int64_t token_bytes) {
  for (const TokenFile& file : corpus.files) {
    const int64_t num_bytes = file.file->num_bytes() - file.header_bytes;
    if (num_bytes % token_bytes == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(file.file->path(), ": ", num_bytes, " bytes are no whole number of ",
                     WidthText(token_bytes),
                     " tokens; the file is cut short or not a token file (--token_bytes=2 or 4 "
                     "says how wide tokens are)"));
  }
  return absl::OkStatus();
}

// Whether tokens of two bytes look like the halves of tokens of four: of each pair the second half
// is that of a number below 2^21, which all vocabularies are, while the first is any; or the second
// is always zero, and the first is not.
absl::StatusOr<bool> LooksLikeUint32(const TokenFile& file) {
  constexpr int64_t kProbeBytes = int64_t{1} << 14;
  constexpr int32_t kMostUpperHalf = (1 << 5) - 1;
  constexpr int64_t kFewestPairs = 16;
  const int64_t begin = file.header_bytes;
  const int64_t num_pairs = std::min(kProbeBytes, file.file->num_bytes() - begin) / 4;
  if (num_pairs < kFewestPairs) return false;
  std::vector<uint8_t> probe(4 * num_pairs);
  RETURN_IF_ERROR(file.file->Read(begin, absl::MakeSpan(probe)));
  std::vector<int32_t> halves(2 * num_pairs);
  WidenTokens(TokenWidth::kTwoBytes, probe.data(), 2 * num_pairs, halves.data());
  int32_t most_lower = 0;
  int32_t most_upper = 0;
  for (int64_t i = 0; i < num_pairs; ++i) {
    most_lower = std::max(most_lower, halves[2 * i]);
    most_upper = std::max(most_upper, halves[2 * i + 1]);
  }
  return most_lower > (most_upper == 0 ? 0 : kMostUpperHalf) && most_upper <= kMostUpperHalf;
}

}  // namespace

absl::StatusOr<TokensSource> OpenTokens(const DataConfig& config) {
  TokensSource source;
  source.token_bytes = config.token_bytes;
  TokenCorpus& corpus = source.corpus;
  ASSIGN_OR_RETURN(corpus, OpenTokenCorpus(config, {.suffix = ".bin"}));
  corpus.format = "tokens";
  std::optional<TokensHeader> header;
  for (TokenFile& file : corpus.files) {
    ASSIGN_OR_RETURN(const std::optional<TokensHeader> own, ReadHeader(*file.file));
    if (!own.has_value()) continue;
    file.header_bytes = kTokensHeaderBytes;
    RETURN_IF_ERROR(TakeWidth(file, *own, config, &source));
    header = own;
  }
  source.header_vocabulary = header.has_value() ? header->vocabulary : 0;
  RETURN_IF_ERROR(CheckWholeTokens(corpus, source.token_bytes == 0 ? 2 : source.token_bytes));
  if (header.has_value()) {
    corpus.reading =
        absl::StrCat(WidthText(source.token_bytes), " tokens, by the header of llm.c ", "for ",
                     header->tokenizer, " (vocabulary ", header->vocabulary, ")");
    corpus.advice = "Use a model with that vocabulary, or data of the model's tokenizer";
  } else if (source.token_bytes != 0) {
    corpus.reading = absl::StrCat(WidthText(source.token_bytes), " tokens, as --token_bytes says");
    corpus.advice = absl::StrCat("Try --token_bytes=", 6 - source.token_bytes,
                                 ", or use data of the model's tokenizer");
  }
  return source;
}

absl::StatusOr<TokenWidth> ChooseTokenWidth(int64_t vocabulary, TokensSource* source) {
  TokenCorpus& corpus = source->corpus;
  if (source->token_bytes == 0) {
    source->token_bytes = vocabulary > kMaxUint16 + 1 ? 4 : 2;
    RETURN_IF_ERROR(CheckWholeTokens(corpus, source->token_bytes));
    corpus.reading = absl::StrCat(WidthText(source->token_bytes), " tokens, which a vocabulary of ",
                                  vocabulary, " needs (no header; --token_bytes)");
    corpus.advice =
        absl::StrCat("Give --token_bytes=", 6 - source->token_bytes, " if they are ",
                     WidthText(6 - source->token_bytes),
                     ", --data_format=text if they are bytes of text, or data of the model's "
                     "tokenizer");
    for (const TokenFile& file : corpus.files) {
      if (source->token_bytes != 2) break;
      ASSIGN_OR_RETURN(const bool is_uint32, LooksLikeUint32(file));
      if (!is_uint32) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          file.file->path(),
          " has no header, and its bytes look like uint32 tokens: give --token_bytes=4, or "
          "--token_bytes=2 if they are uint16"));
    }
  }
  if (source->header_vocabulary > 0 &&
      vocabulary > source->header_vocabulary + kMostPaddedVocabulary) {
    corpus.notes.push_back(absl::StrCat("the model's vocabulary of ", vocabulary,
                                        " is larger than that of the tokens, ",
                                        source->header_vocabulary));
  }
  return source->token_bytes == 4 ? TokenWidth::kFourBytes : TokenWidth::kTwoBytes;
}

}  // namespace lodestar
