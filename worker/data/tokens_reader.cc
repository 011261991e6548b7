#include "worker/data/tokens_reader.h"

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/corpus_files.h"
#include "worker/data/file_bytes.h"

namespace lodestar {
namespace {

constexpr int64_t kHeaderBytes = 1024;
constexpr int32_t kMagic = 20240520;
constexpr int32_t kVersion = 1;
constexpr int64_t kTokenBytes = 2;

int32_t HeaderWord(absl::Span<const uint8_t> bytes, size_t index) {
  int32_t word;
  std::memcpy(&word, bytes.data() + index * sizeof(word), sizeof(word));
  return word;
}

// Returns the bytes in front of the tokens: 0 or kHeaderBytes.
absl::StatusOr<int64_t> CheckHeader(const FileBytes& file) {
  const absl::Span<const uint8_t> bytes = file.bytes();
  const int64_t num_bytes = static_cast<int64_t>(bytes.size());
  if (!HasTokensHeader(bytes)) {
    if (num_bytes % kTokenBytes == 0) return 0;
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": ", num_bytes,
                     " bytes are no whole number of uint16 tokens; the file is cut short or not a "
                     "token file"));
  }
  if (num_bytes < kHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ends at offset ", num_bytes,
                                                   " inside its header of ", kHeaderBytes,
                                                   " bytes"));
  }
  if (HeaderWord(bytes, 1) != kVersion) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": header version ",
                                                   HeaderWord(bytes, 1), " at offset 4, only ",
                                                   kVersion, " (uint16 tokens) is known"));
  }
  const int64_t num_tokens = HeaderWord(bytes, 2);
  const int64_t wanted_bytes = kHeaderBytes + num_tokens * kTokenBytes;
  if (num_tokens < 0 || wanted_bytes != num_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), ": the header at offset 8 tells ", num_tokens, " tokens, that is ",
        wanted_bytes, " bytes, but the file has ", num_bytes, "; copy or make it again"));
  }
  return kHeaderBytes;
}

}  // namespace

bool HasTokensHeader(absl::Span<const uint8_t> start) {
  return start.size() >= 3 * sizeof(int32_t) && HeaderWord(start, 0) == kMagic;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenTokensDataset(const std::string& path,
                                                           const WindowCut& cut) {
  ASSIGN_OR_RETURN(const std::vector<CorpusFile> corpus, ListCorpusFiles(path));
  const bool is_folder = IsFolder(path);
  std::vector<TokenFile> files;
  int64_t num_empty = 0;
  for (const CorpusFile& entry : corpus) {
    if (is_folder && !absl::EndsWith(entry.path, ".bin")) continue;
    if (entry.num_bytes == 0) {
      ++num_empty;
      continue;
    }
    ASSIGN_OR_RETURN(FileBytes file, FileBytes::Map(entry.path));
    ASSIGN_OR_RETURN(const int64_t header_bytes, CheckHeader(file));
    files.push_back({std::move(file), header_bytes});
  }
  if (files.empty() && is_folder && num_empty == 0) {
    return absl::NotFoundError(absl::StrCat(path, ": no file of tokens; looked for *.bin among ",
                                            corpus.size(), " files"));
  }
  if (files.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("empty corpus: ", path, " holds 0 bytes"));
  }
  return MakeWindowDataset("tokens", TokenWidth::kTwoBytes, std::move(files), cut);
}

}  // namespace lodestar
