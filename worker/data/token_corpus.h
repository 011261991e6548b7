// Opens the files of a corpus of text or tokens, and parts them into those for training and those
// held out.
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
  kLeftOut,  // and counted in a note, unless the file's name says that it is a part of the data
  kRefused,  // a shard of 0 bytes was not written or not copied
};

struct CorpusRule {
  NameRule names = NameRule::kEachByItself;
  // Ends of the names of the files of a folder that are taken. Empty means all files.
  absl::Span<const absl::string_view> suffixes = {};
  EmptyFiles empty_files = EmptyFiles::kLeftOut;
};

// Fills in the files, what is held out, and notes on what was left out. Once headers are known,
// call LeaveOutHeldoutCopies(). Errors: those of ListCorpusFiles() and DataFile; NotFound if a
// folder has no file that is taken; InvalidArgument for an empty corpus or file, and for one
// without training data.
absl::StatusOr<TokenCorpus> OpenTokenCorpus(const DataConfig& config, const CorpusRule& rule);

}  // namespace lodestar::data
