// Pre-tokenised data: files of uint16 or uint32 tokens, little-endian, with or without a header of
// llm.c, NeMo or NumPy (token_file_detection.h).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/data/data_config.h"
#include "worker/data/token_stream.h"
#include "worker/data/window_dataset.h"

namespace lodestar::data {

// Files of tokens, and their width as far as headers and --token_bytes tell it.
struct TokensSource {
  TokenCorpus corpus;
  int64_t token_bytes = 0;        // 0 means that neither a header nor --token_bytes says it
  int64_t header_vocabulary = 0;  // of the tokenizer in the headers; 0 means unknown
  // Paths of the first files without a header whose bytes look like uint32, and whose bytes cannot
  // be uint32; empty without such a file.
  std::string uint32_path = {};
  bool is_surely_uint32 = false;  // as uint16, every second token of `uint32_path` would be 0
  std::string not_uint32_path = {};
};

// Opens `config.path`; of a folder the files ending in .bin, .npy or .ds. Errors: those of
// OpenTokenCorpus() and DetectTokenFile(); InvalidArgument for files of unlike widths, a header or
// bytes that contradict --token_bytes, a file without tokens, and a size that is no whole number of
// tokens.
absl::StatusOr<TokensSource> OpenTokens(const DataConfig& config);

// Chooses the width that the model's vocabulary needs if `source` does not know it. Fills in how
// tokens are read, and a note if they are of another vocabulary than the model. Errors:
// InvalidArgument, naming the flag that decides, if the size is no whole number of such tokens, or
// if the bytes look like the other width.
absl::StatusOr<TokenWidth> ChooseTokenWidth(int64_t vocabulary, TokensSource* source);

}  // namespace lodestar::data
