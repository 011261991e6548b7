// Pre-tokenised data: uint16 .bin files, with or without the 1024-byte header that llm.c writes
// (256 int32: magic 20240520, version 1, number of tokens, unused).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/dataset.h"
#include "worker/data/window_dataset.h"

namespace lodestar {

// `path`: one file, or a folder tree of which the files ending in .bin are taken.
// Errors: those of ListCorpusFiles(), FileBytes::Map() and MakeWindowDataset(); InvalidArgument for
// an odd size, a header of another version or a header whose count does not match the size.
absl::StatusOr<std::unique_ptr<Dataset>> OpenTokensDataset(const std::string& path,
                                                           const WindowCut& cut);

// True if a file that starts with these bytes has the header.
bool HasTokensHeader(absl::Span<const uint8_t> start);

}  // namespace lodestar
