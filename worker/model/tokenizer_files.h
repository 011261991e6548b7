// SPDX-License-Identifier: Apache-2.0

// Reads tokenizers from the files of Hugging Face's models.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/file_system.h"
#include "worker/model/byte_pair_tokenizer.h"

namespace lodestar::model {

// Reads a tokenizer.json. Accepts only byte-level BPE as in GPT-2. Errors: InvalidArgument naming
// the field, its value and the allowed values.
absl::StatusOr<BytePairTokenizer::Config> ParseTokenizerJson(absl::string_view text);

// Reads a vocab.json and a merges.txt. Errors: InvalidArgument naming what is wrong and where.
absl::StatusOr<BytePairTokenizer::Config> ParseVocabulary(absl::string_view vocabulary,
                                                          absl::string_view merges);

// Returns true if the folder has files of a tokenizer.
bool HasTokenizer(storage::FileSystem& file_system, const std::string& folder);

// Makes the tokenizer at `path`: a tokenizer.json, or a folder with a tokenizer.json or with
// vocab.json and merges.txt. Errors: NotFound for a folder without these files; those of reading,
// of parsing and of BytePairTokenizer::Create(), with the path in front.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(storage::FileSystem& file_system,
                                                         const std::string& path);

}  // namespace lodestar::model
