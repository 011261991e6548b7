// Tells the format of a data set by looking at it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

enum class DataFormat : uint8_t { kText, kTokens, kIdx, kCifar10 };

absl::string_view DataFormatName(DataFormat format);

// text, tokens, idx or cifar10. Errors: InvalidArgument naming what is allowed ("auto" is the
// caller's business).
absl::StatusOr<DataFormat> ParseDataFormat(absl::string_view name);

// Folders with file names of IDX or CIFAR-10 are that. Otherwise the first file that is not empty
// decides: tokens if it has llm.c's header, or if it is called .bin and has zero bytes, as uint16
// tokens have and text has not. All else is text. Errors: those of ListCorpusFiles();
// InvalidArgument for a single IDX or gzip file.
absl::StatusOr<DataFormat> DetectDataFormat(const std::string& path);

}  // namespace lodestar
