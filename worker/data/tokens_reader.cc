// SPDX-License-Identifier: Apache-2.0

#include "worker/data/tokens_reader.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"
#include "worker/data/token_corpus.h"
#include "worker/data/token_file_detection.h"

namespace lodestar::data {
namespace {

constexpr int64_t kMaxUint16 = 65535;
// A model may have up to this many tokens more than the tokenizer, because models round their
// vocabulary up to sizes that are fast on a card.
constexpr int64_t kMostPaddedVocabulary = 1024;

std::string WidthText(int64_t token_bytes) { return absl::StrCat("uint", 8 * token_bytes); }

absl::Status CheckWholeTokens(const TokenCorpus& corpus, int64_t token_bytes) {
  for (const TokenFile& file : corpus.files) {
    const int64_t num_bytes = file.file->num_bytes() - file.header_bytes;
    if (num_bytes % token_bytes == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        file.file->path(), ": ", num_bytes, " bytes are not a whole number of ",
        WidthText(token_bytes), " tokens; ",
        num_bytes % 2 == 0
            ? "if they are uint16, give --token_bytes=2; otherwise copy the file or make it again"
            : "the file is cut short or is not a file of tokens; copy it or make it again"));
  }
  return absl::OkStatus();
}

// A file and the facts about its bytes.
struct DetectedFile {
  std::string path;
  TokenFileFacts facts;
};

std::string HeaderText(const DetectedFile& file) {
  return absl::StrCat(
      "the header of ", file.facts.writer,
      file.facts.tokenizer.empty() ? "" : absl::StrCat(" for ", file.facts.tokenizer),
      file.facts.vocabulary == 0 ? "" : absl::StrCat(" (vocabulary ", file.facts.vocabulary, ")"));
}

// Checks that `file` can have tokens of the width in the header of `headed`. `file` has no header.
// The error message begins with the later of the two files. It is more likely the wrong one,
// because held-out files come after training files.
absl::Status CheckBytes(const DetectedFile& file, const DetectedFile& headed) {
  const int64_t token_bytes = headed.facts.token_bytes;
  const bool is_too_narrow = token_bytes == 2 && file.facts.looks_like_uint32;
  const bool is_too_wide = token_bytes == 4 && file.facts.is_never_uint32;
  if (!is_too_narrow && !is_too_wide) return absl::OkStatus();
  const std::string bytes_text = absl::StrCat(
      file.path, " has no header, and its bytes ",
      is_too_narrow
          ? "look like uint32 tokens"
          : "are not uint32 tokens, because some would be 2^21 or more, which no vocabulary has");
  const std::string width = WidthText(token_bytes);
  return absl::InvalidArgumentError(
      absl::StrCat(&headed > &file ? absl::StrCat(headed.path, ": ", HeaderText(headed), " says ",
                                                  width, ", but ", bytes_text)
                                   : absl::StrCat(bytes_text, ", but ", HeaderText(headed), " in ",
                                                  headed.path, " says ", width),
                   "; all files must have tokens of one width"));
}

// Checks --token_bytes against a file without a header. Fails if the bytes cannot be tokens of that
// width.
absl::Status CheckFlag(const DetectedFile& file, int64_t token_bytes) {
  if (token_bytes == 2 && file.facts.is_never_uint16) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path, ": with --token_bytes=2, every second token is 0; ",
                     "the bytes look like uint32 tokens, so give --token_bytes=4"));
  }
  if (token_bytes == 4 && file.facts.is_never_uint32) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path,
        ": --token_bytes=4 is wrong, because some tokens would be 2^21 or more, which no "
        "vocabulary has. ",
        "If they are uint16, give --token_bytes=2; otherwise give data of the model's tokenizer"));
  }
  return absl::OkStatus();
}

// Decides the width from the files and --token_bytes together.
absl::Status SettleWidth(const std::vector<DetectedFile>& files, const DataConfig& config,
                         TokensSource* source) {
  source->token_bytes = config.token_bytes;
  const DetectedFile* headed = nullptr;
  for (const DetectedFile& file : files) {
    if (file.facts.token_bytes == 0) continue;
    if (headed == nullptr) headed = &file;
    if (source->token_bytes == 0) source->token_bytes = file.facts.token_bytes;
    if (source->token_bytes == file.facts.token_bytes) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        file.path, ": ", HeaderText(file), " says ", WidthText(file.facts.token_bytes), ", but ",
        config.token_bytes != 0
            ? absl::StrCat("--token_bytes=", config.token_bytes, " is given; leave the flag out")
            : absl::StrCat(HeaderText(*headed), " in ", headed->path, " says ",
                           WidthText(source->token_bytes),
                           "; all files must have tokens of one width")));
  }
  for (const DetectedFile& file : files) {
    if (file.facts.token_bytes != 0) continue;
    if (config.token_bytes != 0) {
      RETURN_IF_ERROR(CheckFlag(file, config.token_bytes));
    } else if (headed != nullptr) {
      RETURN_IF_ERROR(CheckBytes(file, *headed));
    } else if (file.facts.looks_like_uint32) {
      if (source->uint32_path.empty()) source->uint32_path = file.path;
      source->is_surely_uint32 |= file.facts.is_never_uint16;
    } else if (file.facts.is_never_uint32) {
      if (source->not_uint32_path.empty()) source->not_uint32_path = file.path;
    }
  }
  if (!source->uint32_path.empty() && !source->not_uint32_path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source->uint32_path, " looks like uint32 tokens, but ",
                     source->not_uint32_path, " does not; give files with one width of tokens"));
  }
  if (headed != nullptr) {
    source->header_vocabulary = headed->facts.vocabulary;
    source->corpus.reading =
        absl::StrCat(WidthText(source->token_bytes), " tokens, by ", HeaderText(*headed));
    source->corpus.advice = "Use a model with the vocabulary of the tokens, or other data";
  } else if (config.token_bytes != 0) {
    source->corpus.reading =
        absl::StrCat(WidthText(source->token_bytes), " tokens, as --token_bytes says");
    source->corpus.advice = "Use data of the model's tokenizer, little-endian";
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokensSource> OpenTokens(const DataConfig& config) {
  TokensSource source;
  TokenCorpus& corpus = source.corpus;
  ASSIGN_OR_RETURN(corpus, OpenTokenCorpus(config, {.suffixes = kTokenFileSuffixes,
                                                    .empty_files = EmptyFiles::kRefused}));
  corpus.format = "tokens";
  std::vector<DetectedFile> files;
  for (TokenFile& file : corpus.files) {
    ASSIGN_OR_RETURN(TokenFileFacts facts, DetectTokenFile(*file.file));
    file.header_bytes = facts.header_bytes;
    if (file.file->num_bytes() == file.header_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          file.file->path(), " has a header and 0 tokens; copy it or make it again, or ",
          "remove it if it should be empty"));
    }
    files.push_back({file.file->path(), std::move(facts)});
  }
  RETURN_IF_ERROR(LeaveOutHeldoutCopies(&corpus));
  RETURN_IF_ERROR(SettleWidth(files, config, &source));
  RETURN_IF_ERROR(CheckWholeTokens(corpus, source.token_bytes == 0 ? 2 : source.token_bytes));
  return source;
}

absl::StatusOr<TokenWidth> ChooseTokenWidth(int64_t vocabulary, TokensSource* source) {
  TokenCorpus& corpus = source->corpus;
  if (source->token_bytes == 0) {
    source->token_bytes = vocabulary > kMaxUint16 + 1 ? 4 : 2;
    RETURN_IF_ERROR(CheckWholeTokens(corpus, source->token_bytes));
    corpus.reading = absl::StrCat(WidthText(source->token_bytes), " tokens, which a vocabulary of ",
                                  vocabulary, " needs (no header; --token_bytes)");
    corpus.advice = "Use data of the model's tokenizer, little-endian";
    if (source->token_bytes == 2 && !source->uint32_path.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          source->uint32_path,
          " has no header, and its bytes look like uint32 tokens. Give --token_bytes=4",
          source->is_surely_uint32 ? "" : ", or --token_bytes=2 if they are uint16"));
    }
    if (source->token_bytes == 4 && !source->not_uint32_path.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          source->not_uint32_path, " has no header, and its bytes are not uint32 tokens, which a ",
          "vocabulary of ", vocabulary,
          " needs. If they are uint16, give --token_bytes=2; otherwise give data of the model's "
          "tokenizer"));
    }
  }
  if (source->header_vocabulary > 0 &&
      vocabulary > source->header_vocabulary + kMostPaddedVocabulary) {
    corpus.notes.push_back(absl::StrCat("the model's vocabulary is ", vocabulary,
                                        ", but the vocabulary of the tokens is only ",
                                        source->header_vocabulary));
  }
  return source->token_bytes == 4 ? TokenWidth::kFourBytes : TokenWidth::kTwoBytes;
}

}  // namespace lodestar::data
