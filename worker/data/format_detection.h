// Tells the format of a data set by looking at it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::data {

enum class DataFormat : uint8_t { kText, kTokens, kIdx, kCifar10 };

absl::string_view DataFormatName(DataFormat format);

// text, tokens, idx or cifar10. Errors: InvalidArgument naming what is allowed ("auto" is the
// caller's business).
absl::StatusOr<DataFormat> ParseDataFormat(absl::string_view name);

// Folders with file names of IDX or CIFAR-10 are that. Else every file that is not empty is looked
// at. It holds tokens if it has a header of tokens, or is called .bin, .npy or .ds and has zero
// bytes, as tokens of 2 or 4 bytes have and text has not. It is text if it looks like text at three
// places. Errors: those of ListCorpusFiles() and DataFile; InvalidArgument naming what is there,
// and the flag that decides, for files that are neither, and for both in one folder; naming the
// folder, if images lie in one below `path`.
absl::StatusOr<DataFormat> DetectDataFormat(const std::string& path);

}  // namespace lodestar::data
