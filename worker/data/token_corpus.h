// SPDX-License-Identifier: Apache-2.0

// Opens the files of a corpus of text or tokens, and divides them into training and held-out files.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/data/corpus_split.h"
#include "worker/data/data_config.h"
#include "worker/data/window_dataset.h"

namespace lodestar::data {

enum class EmptyFiles : uint8_t {
  // Empty files are left out and counted in a note. If files are split by their names, an empty
  // file whose name says training or held out is an error.
  kLeftOut,
  // Empty files are errors, because an empty shard was not written or not copied completely.
  kRefused,
};

struct CorpusRule {
  NameRule names = NameRule::kEachByItself;
  // Endings of the names of files that are read from a folder. Empty means that all files are read.
  absl::Span<const absl::string_view> suffixes = {};
  EmptyFiles empty_files = EmptyFiles::kLeftOut;
};

// Opens the files, decides what is held out, and adds notes on files that are left out. Does not
// call LeaveOutHeldoutCopies(): the caller must do this once it knows the headers of the files.
// Errors: those of ListCorpusFiles() and DataFile; NotFound if a folder has no file to read;
// InvalidArgument for an empty corpus or file, or a corpus without training data.
absl::StatusOr<TokenCorpus> OpenTokenCorpus(const DataConfig& config, const CorpusRule& rule);

}  // namespace lodestar::data
