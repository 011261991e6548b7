// SPDX-License-Identifier: Apache-2.0

// Finds the format of a data set by its files.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::data {

enum class DataFormat : uint8_t { kText, kTokens, kIdx, kCifar10 };

absl::string_view DataFormatName(DataFormat format);

// Returns the format with this name: text, tokens, idx or cifar10. Errors: InvalidArgument naming
// the allowed names. The caller handles "auto".
absl::StatusOr<DataFormat> ParseDataFormat(absl::string_view name);

// Returns the format of the data at `path`:
// - A folder with file names of IDX or CIFAR-10 has that format.
// - A file holds tokens if it has a header of tokens.
// - A file also holds tokens if its name ends in .bin, .npy or .ds and it has zero bytes. Text has
//   none.
// - A file is text if its start, middle and end look like text.
// Ignores empty files. Errors:
// - those of ListCorpusFiles() and DataFile;
// - InvalidArgument naming the files and the flag to set, if files are neither text nor tokens, or
//   both are in one folder;
// - InvalidArgument naming the folder, if a folder below `path` holds images.
absl::StatusOr<DataFormat> DetectDataFormat(const std::string& path);

}  // namespace lodestar::data
