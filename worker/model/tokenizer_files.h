// Tokenizers in the files that Hugging Face's models come with.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/file_system.h"
#include "worker/model/byte_pair_tokenizer.h"

namespace lodestar::model {

// What a tokenizer.json says. Errors: InvalidArgument naming the field, what it says and what is
// known here, for anything but byte-level BPE as GPT-2 has it.
absl::StatusOr<BytePairTokenizer::Config> ParseTokenizerJson(absl::string_view text);

// What a vocab.json and a merges.txt say. Errors: InvalidArgument naming what is wrong where.
absl::StatusOr<BytePairTokenizer::Config> ParseVocabulary(absl::string_view vocabulary,
                                                          absl::string_view merges);

// Whether a folder has files of a tokenizer.
bool HasTokenizer(FileSystem& file_system, const std::string& folder);

// `path`: a tokenizer.json, or a folder with one, or with vocab.json and merges.txt. Errors: those
// of files; NotFound for a folder without them; those of parsing and of
// BytePairTokenizer::Create(), behind the path.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(FileSystem& file_system,
                                                         const std::string& path);

}  // namespace lodestar::model
