// SPDX-License-Identifier: Apache-2.0

// Reads text: a file, or a tree of folders with files, whose bytes are the tokens.
#pragma once

#include "absl/status/statusor.h"
#include "worker/data/data_config.h"
#include "worker/data/window_dataset.h"

namespace lodestar::data {

// Opens the files. Errors: those of OpenTokenCorpus(); InvalidArgument if --token_bytes is set,
// because that flag is for files of tokens only.
absl::StatusOr<TokenCorpus> OpenText(const DataConfig& config);

}  // namespace lodestar::data
