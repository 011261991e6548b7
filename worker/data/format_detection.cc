// SPDX-License-Identifier: Apache-2.0

#include "worker/data/format_detection.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_kind.h"
#include "worker/data/cifar10_reader.h"
#include "worker/data/corpus_files.h"
#include "worker/data/corpus_split.h"
#include "worker/data/data_file.h"
#include "worker/data/idx_reader.h"
#include "worker/data/token_file_detection.h"

namespace lodestar::data {
namespace {

constexpr int64_t kProbeBytes = int64_t{1} << 16;
constexpr size_t kMostNamed = 3;  // Maximum number of files in a message.

// Paths of the files, sorted by kind of content. `strange` has the files that are neither text nor
// tokens, each with what it is.
struct Census {
  std::vector<std::string> text;
  std::vector<std::string> tokens;
  std::vector<std::string> strange;
  // True if `strange` has IDX files. A data set of the IDX format is a folder, so one IDX file is
  // only a part.
  bool has_parts_of_idx = false;
  // True if the format of a file in `strange` was recognized, such as PNG.
  bool has_known_kind = false;
};

absl::StatusOr<std::vector<uint8_t>> ReadProbe(const DataFile& file, int64_t offset) {
  std::vector<uint8_t> probe(std::min(kProbeBytes, file.num_bytes() - offset));
  RETURN_IF_ERROR(file.Read(offset, absl::MakeSpan(probe)));
  return probe;
}

// Returns the reason why the file is not text. Empty means that it looks like text. Looks at start,
// middle and end, because a file that a crash cut short ends in zeros.
absl::StatusOr<std::string> WhyNoTextAnywhere(const DataFile& file) {
  const int64_t last = std::max<int64_t>(0, file.num_bytes() - kProbeBytes);
  for (const int64_t offset : {int64_t{0}, last / 2, last}) {
    ASSIGN_OR_RETURN(const std::vector<uint8_t> probe, ReadProbe(file, offset));
    if (std::string why = storage::WhyNoText(probe, offset); !why.empty()) return why;
  }
  return "";
}

absl::Status CountFile(const std::string& path, Census& census) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const DataFile> file,
                   DataFile::Open(path, DataFile::Descriptor::kKept));
  ASSIGN_OR_RETURN(const std::vector<uint8_t> start, ReadProbe(*file, 0));
  const bool has_zero = std::find(start.begin(), start.end(), 0) != start.end();
  if (HasTokenHeader(start)) {
    census.tokens.push_back(path);
  } else if (const absl::string_view kind = storage::KindByMagic(start); !kind.empty()) {
    census.strange.push_back(absl::StrCat(path, " (", kind, ")"));
    census.has_known_kind = true;
    census.has_parts_of_idx |= absl::StartsWith(kind, "IDX") || absl::EndsWith(path, "-ubyte.gz");
  } else if (HasTokenFileName(path) && has_zero) {
    census.tokens.push_back(path);
  } else {
    ASSIGN_OR_RETURN(const std::string why, WhyNoTextAnywhere(*file));
    if (why.empty()) {
      census.text.push_back(path);
    } else {
      census.strange.push_back(absl::StrCat(path, " (", why, ")"));
    }
  }
  return absl::OkStatus();
}

std::string Named(const std::vector<std::string>& files) {
  const size_t named = std::min(files.size(), kMostNamed);
  return absl::StrCat(
      absl::StrJoin(files.begin(), files.begin() + named, ", "),
      named < files.size() ? absl::StrCat(" and ", files.size() - named, " more") : "");
}

// Checks that no folder below `path` holds a data set of images. The error tells the user to set
// --data to that folder.
absl::Status CheckNoImagesBelow(const std::string& path, const std::vector<CorpusFile>& files) {
  std::set<std::string> folders;
  for (const CorpusFile& file : files) folders.insert(file.path.substr(0, file.path.rfind('/')));
  folders.erase(path);
  for (const std::string& folder : folders) {
    RETURN_IF_ERROR(CheckNoOtherCifar(folder));
    const bool is_idx = HasAllIdxFiles(folder);
    if (!is_idx && !HasAllCifar10Files(folder)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", is_idx ? "IDX" : "CIFAR-10",
                     " images in a folder inside it; give --data=", folder));
  }
  return absl::OkStatus();
}

absl::Status NoText(const Census& census) {
  const bool is_one = census.strange.size() == 1;
  const absl::string_view them = is_one ? "it" : "them";
  return absl::InvalidArgumentError(absl::StrCat(
      is_one ? "this file is not text: "
             : absl::StrCat(census.strange.size(), " files are not text: "),
      Named(census.strange), "; unpack or convert ", them, " to UTF-8, or remove ", them,
      census.has_known_kind
          ? ""
          : ". If the data are tokens of 2 or 4 bytes, give --data_format=tokens. To use every "
            "byte as a token, give --data_format=text",
      census.has_parts_of_idx
          ? absl::StrCat(". For IDX images, give the folder with ", IdxFileNames())
          : ""));
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
      "--data_format=", name, " is unknown; allowed: auto, text, tokens, idx, cifar10"));
}

absl::StatusOr<DataFormat> DetectDataFormat(const std::string& path) {
  if (IsFolder(path)) {
    if (LooksLikeIdxFolder(path)) return DataFormat::kIdx;
    if (LooksLikeCifar10Folder(path)) return DataFormat::kCifar10;
    RETURN_IF_ERROR(CheckNoOtherCifar(path));
  }
  ASSIGN_OR_RETURN(const CorpusListing listing, ListCorpusFiles(path));
  const std::vector<CorpusFile>& files = listing.files;
  if (IsFolder(path)) RETURN_IF_ERROR(CheckNoImagesBelow(path, files));
  Census census;
  for (const CorpusFile& file : files) {
    if (file.num_bytes > 0) RETURN_IF_ERROR(CountFile(file.path, census));
  }
  if (census.tokens.empty()) {
    if (!census.strange.empty()) return NoText(census);
    return DataFormat::kText;
  }
  std::vector<std::string> others;
  std::copy_if(census.text.begin(), census.text.end(), std::back_inserter(others),
               std::not_fn(IsDocumentation));
  others.insert(others.end(), census.strange.begin(), census.strange.end());
  if (others.empty()) return DataFormat::kTokens;
  const bool is_apart_by_name = std::none_of(files.begin(), files.end(), [&](const auto& file) {
    return file.num_bytes > 0 && HasTokenFileName(file.path) &&
           std::find(census.tokens.begin(), census.tokens.end(), file.path) == census.tokens.end();
  });
  // nanoGPT and DataTrove write files with notes into the folder of their token files. In such a
  // folder, files that are not tokens are no error.
  const bool has_notes_of_writer =
      std::any_of(files.begin(), files.end(), [](const CorpusFile& file) {
        return file.path.substr(file.path.rfind('/') + 1) == "meta.pkl" ||
               absl::EndsWith(file.path, ".ds.metadata");
      });
  if (is_apart_by_name && has_notes_of_writer) return DataFormat::kTokens;
  return absl::InvalidArgumentError(absl::StrCat(
      path, " holds files of tokens (", Named(census.tokens), ") and other files (", Named(others),
      "). Remove one of the two kinds",
      is_apart_by_name
          ? ", or give --data_format=tokens, which reads only the .bin, .npy and .ds files"
          : ""));
}

}  // namespace lodestar::data
