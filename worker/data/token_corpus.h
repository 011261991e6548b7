// Opens the files of a corpus of text or tokens, and parts them into those for training and those
// held out.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/corpus_split.h"
#include "worker/data/data_config.h"
#include "worker/data/window_dataset.h"

namespace lodestar {

struct CorpusRule {
  NameRule names = NameRule::kEachByItself;
  std::string suffix = {};  // of the files of a folder that are taken; empty: all
};

// Fills in the files, what is held out, and notes on what was left out. Empty files are passed
// over. Errors: those of ListCorpusFiles() and DataFile::Open(); NotFound if a folder has no file
// that is taken; InvalidArgument for an empty corpus, for one without training data, and for
// held-out data that is all of the training data.
absl::StatusOr<TokenCorpus> OpenTokenCorpus(const DataConfig& config, const CorpusRule& rule);

}  // namespace lodestar
