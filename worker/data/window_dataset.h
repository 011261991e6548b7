// SPDX-License-Identifier: Apache-2.0

// Makes a data set of windows of context + 1 tokens from files of text or tokens.
//
// Held out is the last tenth of every file of the part kCut, rounded down. If a tenth of a typical
// file is shorter than a window, whole files are held out, and their copies are not trained on.
//
// The training tokens of all files form one sequence, and so do the held-out tokens. So a window
// may cross files. Windows begin `context` tokens apart, so neighbours share one token, and every
// token but the first is predicted once. The first training window starts at another token in each
// epoch.
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
  int64_t vocabulary = 0;  // Every token must be below it.
  // Together with the epoch, the seed determines where the training windows start.
  uint64_t seed = 1;
};

struct TokenFile {
  std::shared_ptr<const DataFile> file;
  // Number of bytes before the first token. All bytes from there to the end of the file are tokens.
  int64_t header_bytes = 0;
  FilePart part = FilePart::kCut;
};

// The files of a data set, before the model is known.
struct TokenCorpus {
  // "text" or "tokens", for messages and the fingerprint.
  std::string format;
  // The files that are used. None of them is empty.
  std::vector<TokenFile> files;
  // For messages: how tokens are read ("uint16 tokens behind the header of llm.c for GPT-2"), and
  // what to do if a token is outside the vocabulary.
  std::string reading;
  std::string advice;
  // For messages: what is held out, such as "the last tenth of every file".
  std::string heldout_name;
  std::vector<std::string> notes;  // Notes for the log.
};

// Removes files from the training data whose bytes after the header equal those of a file that is
// held out as a whole. Adds a note with the number of removed files. Errors: InvalidArgument if no
// training data is left; those of DataFile::Read().
absl::Status LeaveOutHeldoutCopies(TokenCorpus* corpus);

// Makes the data set. Reads every byte once. Errors: InvalidArgument for a corpus that is empty or
// shorter than a window, or a token outside the vocabulary; those of ScanDataFile().
absl::StatusOr<std::unique_ptr<Dataset>> MakeWindowDataset(
    TokenCorpus corpus, TokenWidth width, const WindowCut& cut,
    StopRequested stop_requested = NeverStopped);

}  // namespace lodestar::data
