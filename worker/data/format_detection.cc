#include "worker/data/format_detection.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "worker/data/cifar10_reader.h"
#include "worker/data/corpus_files.h"
#include "worker/data/file_bytes.h"
#include "worker/data/idx_reader.h"
#include "worker/data/tokens_reader.h"

namespace lodestar {
namespace {

constexpr size_t kProbeBytes = size_t{1} << 16;

bool StartsWithBytes(absl::Span<const uint8_t> bytes, std::vector<uint8_t> magic) {
  return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
}

absl::StatusOr<DataFormat> DetectFileFormat(const std::string& path) {
  ASSIGN_OR_RETURN(const FileBytes file, FileBytes::Map(path));
  const absl::Span<const uint8_t> start = file.bytes().subspan(0, kProbeBytes);
  if (HasTokensHeader(start)) return DataFormat::kTokens;
  if (StartsWithBytes(start, {0x1f, 0x8b})) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": gzip data at offset 0; unpack text and tokens, and for IDX images "
                     "give the folder with ",
                     IdxFileNames()));
  }
  if (StartsWithBytes(start, {0, 0, 8, 3}) || StartsWithBytes(start, {0, 0, 8, 1})) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a single IDX file; give the folder with ", IdxFileNames()));
  }
  const bool has_zero = std::find(start.begin(), start.end(), 0) != start.end();
  return absl::EndsWith(path, ".bin") && has_zero ? DataFormat::kTokens : DataFormat::kText;
}

}  // namespace

absl::string_view DataFormatName(DataFormat format) {
  switch (format) {
    case DataFormat::kText:
      return "text";
    case DataFormat::kTokens:
      return "tokens";
    case DataFormat::kIdx:
      return "idx";
    case DataFormat::kCifar10:
      return "cifar10";
  }
  return "unknown";
}

absl::StatusOr<DataFormat> ParseDataFormat(absl::string_view name) {
  for (DataFormat format :
       {DataFormat::kText, DataFormat::kTokens, DataFormat::kIdx, DataFormat::kCifar10}) {
    if (name == DataFormatName(format)) return format;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--data_format=", name, " is not known; allowed are auto, text, tokens, idx, cifar10"));
}

absl::StatusOr<DataFormat> DetectDataFormat(const std::string& path) {
  if (IsFolder(path)) {
    if (LooksLikeIdxFolder(path)) return DataFormat::kIdx;
    if (LooksLikeCifar10Folder(path)) return DataFormat::kCifar10;
  }
  ASSIGN_OR_RETURN(const std::vector<CorpusFile> files, ListCorpusFiles(path));
  for (const CorpusFile& file : files) {
    if (file.num_bytes > 0) return DetectFileFormat(file.path);
  }
  return DataFormat::kText;
}

}  // namespace lodestar
