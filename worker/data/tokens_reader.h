// SPDX-License-Identifier: Apache-2.0

// Reads files of uint16 or uint32 tokens, little-endian, with or without a header of llm.c, NeMo or
// NumPy (token_file_detection.h).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/data/data_config.h"
#include "worker/data/token_stream.h"
#include "worker/data/window_dataset.h"

namespace lodestar::data {

// Files of tokens, and their width if headers or --token_bytes say it.
struct TokensSource {
  TokenCorpus corpus;
  // Bytes per token. 0 means that neither a header nor --token_bytes gives the width.
  int64_t token_bytes = 0;
  // Vocabulary of the tokenizer in the headers. 0 means unknown.
  int64_t header_vocabulary = 0;
  // uint32_path is the first file without a header whose bytes look like uint32. not_uint32_path is
  // the first file without a header whose bytes cannot be uint32. Empty means that there is no such
  // file.
  std::string uint32_path = {};
  // True if a file that looks like uint32 cannot be uint16: every second uint16 would be 0.
  bool is_surely_uint32 = false;
  std::string not_uint32_path = {};
};

// Opens `config.path`. From a folder, files ending in .bin, .npy or .ds are read. Errors: those of
// OpenTokenCorpus() and DetectTokenFile(); InvalidArgument for one of these:
// - files of different widths;
// - a header or bytes that contradict --token_bytes;
// - a file without tokens;
// - a size that is not a whole number of tokens.
absl::StatusOr<TokensSource> OpenTokens(const DataConfig& config);

// Returns the width of the tokens. If `source` does not know it, chooses the width that the model's
// vocabulary needs, and sets corpus.reading and corpus.advice. Adds a note if the model's
// vocabulary is much larger than that of the header. Errors: InvalidArgument, if the chosen width
// does not fit the size or the bytes of a file.
absl::StatusOr<TokenWidth> ChooseTokenWidth(int64_t vocabulary, TokensSource* source);

}  // namespace lodestar::data
