// Text: a file or a folder tree of files, whose bytes are the tokens.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/data/window_dataset.h"

namespace lodestar {

// Errors: those of ListCorpusFiles(), FileBytes::Map() and MakeWindowDataset().
absl::StatusOr<std::unique_ptr<Dataset>> OpenTextDataset(const std::string& path,
                                                         const WindowCut& cut);

}  // namespace lodestar
