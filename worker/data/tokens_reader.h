// Pre-tokenised data: files of uint16 or uint32 tokens, little-endian, with or without the header
// that llm.c writes (tokens_header.h).
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/data/data_config.h"
#include "worker/data/token_stream.h"
#include "worker/data/window_dataset.h"

namespace lodestar {

// Files of tokens, and their width as far as headers and --token_bytes tell it.
struct TokensSource {
  TokenCorpus corpus;
  int64_t token_bytes = 0;        // 0: nobody has said
  int64_t header_vocabulary = 0;  // of the tokenizer in the headers; 0: no header
};

// Of a folder the files ending in .bin are taken. Errors: those of OpenTokenCorpus() and
// ParseTokensHeader(); InvalidArgument for files of unlike widths, a header that contradicts
// --token_bytes, and a size that is no whole number of tokens.
absl::StatusOr<TokensSource> OpenTokens(const DataConfig& config);

// Where nobody has said how wide tokens are, they are as wide as the model's vocabulary needs.
// Fills in how they are read, and a note if they are of another vocabulary than the model. Errors:
// InvalidArgument, naming the flag that decides, if the size is no whole number of such tokens, or
// if tokens of two bytes look like halves of tokens of four.
absl::StatusOr<TokenWidth> ChooseTokenWidth(int64_t vocabulary, TokensSource* source);

}  // namespace lodestar
