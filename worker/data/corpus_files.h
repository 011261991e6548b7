// Finds the files of a corpus. Knows paths and sizes only, not formats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::data {

struct CorpusFile {
  std::string path;  // to open it
  std::string
      relative_path;  // to the root of the corpus; the file's own name if the corpus is one file
  int64_t num_bytes = 0;
};

struct CorpusListing {
  std::vector<CorpusFile> files;
  // Relative paths of the files and folders that IsSideEntry() knows, and of what servers of ours
  // have written: folders of runs and checkpoints, or a run's own files in the folder of the data.
  // What is in such a folder is not listed.
  std::vector<std::string> side_entries;
};

// True for names of what programs leave beside data: hidden entries (.git, .nfs000012, temporary
// files of rsync), backups of editors, parts of downloads, and folders of operating systems.
bool IsSideEntry(absl::string_view name);

// The file at `path`, or all files of the folder tree below it but for side entries, sorted
// bytewise by relative path, so that machines with the same tree agree. Links are followed; a
// folder reached a second time (a link to a parent) is skipped. Errors: NotFound (nothing there,
// dangling link), PermissionDenied, InvalidArgument for what is neither file nor folder.
absl::StatusOr<CorpusListing> ListCorpusFiles(const std::string& path);

// False also if there is nothing at `path`.
bool IsFolder(const std::string& path);
bool IsFile(const std::string& path);

}  // namespace lodestar::data
