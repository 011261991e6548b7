// Windows of context + 1 tokens out of files of tokens: what text and pre-tokenised data have in
// common.
//
// Of every file the last floor(tokens / 10) tokens are held out, unless its part says otherwise. If
// that is less than a window for the files that most tokens lie in, whole files are held out, and
// their copies are not trained on. Both
// parts are laid end to end over all files, so a window may cross files. Held-out windows lie
// `context` apart from the start, so that they share one token and every token but the first is
// predicted once. Training windows do the same from a start that differs per epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/corpus_split.h"
#include "worker/data/data_file.h"
#include "worker/data/dataset.h"
#include "worker/data/token_stream.h"

namespace lodestar::data {

struct WindowCut {
  int64_t context = 0;
  int64_t vocabulary = 0;  // every token must be below
  uint64_t seed = 1;       // of the training windows' start per epoch
};

struct TokenFile {
  std::shared_ptr<const DataFile> file;
  int64_t header_bytes = 0;  // tokens follow, to the end of the file
  FilePart part = FilePart::kCut;
};

// Files that were found, before it is known what a model takes of them.
struct TokenCorpus {
  std::string format;            // for messages and the fingerprint: "text", "tokens"
  std::vector<TokenFile> files;  // none is left out, none is empty
  // How tokens are read, for messages: "uint16 tokens behind the header of llm.c for GPT-2", and
  // what to do if one is outside the vocabulary.
  std::string reading;
  std::string advice;
  std::string heldout_name;        // what is held out, for messages: "the last tenth of every file"
  std::vector<std::string> notes;  // what is worth knowing, for the log
};

// Takes files out of the training data whose bytes behind the header are held out as a whole, too,
// and notes how many. Errors: InvalidArgument if nothing is left to train on; those of
// DataFile::Read().
absl::Status LeaveOutHeldoutCopies(TokenCorpus* corpus);

// Reads every byte once.
// Errors: InvalidArgument for an empty corpus, one shorter than a window, or a token outside the
// vocabulary; those of ScanDataFile().
absl::StatusOr<std::unique_ptr<Dataset>> MakeWindowDataset(
    TokenCorpus corpus, TokenWidth width, const WindowCut& cut,
    StopRequested stop_requested = NeverStopped);

}  // namespace lodestar::data
