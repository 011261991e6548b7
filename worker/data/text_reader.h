// Text: a file or a folder tree of files, whose bytes are the tokens.
#pragma once

#include "absl/status/statusor.h"
#include "worker/data/data_config.h"
#include "worker/data/window_dataset.h"

namespace lodestar::data {

// Errors: those of OpenTokenCorpus(); InvalidArgument for --token_bytes, which is for tokens.
absl::StatusOr<TokenCorpus> OpenText(const DataConfig& config);

}  // namespace lodestar::data
