#include "worker/data/text_reader.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/corpus_files.h"
#include "worker/data/file_bytes.h"

namespace lodestar {

absl::StatusOr<std::unique_ptr<Dataset>> OpenTextDataset(const std::string& path,
                                                         const WindowCut& cut) {
  ASSIGN_OR_RETURN(const std::vector<CorpusFile> corpus, ListCorpusFiles(path));
  std::vector<TokenFile> files;
  for (const CorpusFile& entry : corpus) {
    // An empty file adds nothing and cannot be mapped.
    if (entry.num_bytes == 0) continue;
    ASSIGN_OR_RETURN(FileBytes file, FileBytes::Map(entry.path));
    files.push_back({std::move(file), 0});
  }
  if (files.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("empty corpus: ", path, " has ", corpus.size(),
                                                   " files with 0 bytes of text in all"));
  }
  return MakeWindowDataset("text", TokenWidth::kOneByte, std::move(files), cut);
}

}  // namespace lodestar
