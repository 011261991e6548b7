// Windows of context + 1 tokens over a corpus of token files: what text and pre-tokenised data have
// in common.
//
// Of every file the last floor(tokens / 10) tokens are held out; both parts are laid end to end
// over all files, so a window may cross files. Held-out windows lie `context` apart from the start,
// so that they share one token and every token but the first is predicted once. Training windows do
// the same from a start that differs per epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/data/file_bytes.h"
#include "worker/data/token_stream.h"

namespace lodestar {

struct WindowCut {
  int64_t context = 0;
  int64_t vocabulary = 0;  // every token must be below
  uint64_t seed = 1;       // of the training windows' start per epoch
};

struct TokenFile {
  FileBytes file;
  int64_t header_bytes = 0;  // tokens follow, to the end of the file
};

// `format` is for messages and the fingerprint. Reads every byte once.
// Errors: InvalidArgument for an empty corpus, one shorter than a window, or a token outside the
// vocabulary.
absl::StatusOr<std::unique_ptr<Dataset>> MakeWindowDataset(const std::string& format,
                                                           TokenWidth width,
                                                           std::vector<TokenFile> files,
                                                           const WindowCut& cut);

}  // namespace lodestar
