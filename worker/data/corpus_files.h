// SPDX-License-Identifier: Apache-2.0

// Finds the files of a corpus by paths and sizes. Does not read the files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::data {

struct CorpusFile {
  // The path for opening the file.
  std::string path;
  std::string
      relative_path;  // Path below the root of the corpus, or the name of a corpus of one file.
  int64_t num_bytes = 0;
};

struct CorpusListing {
  std::vector<CorpusFile> files;
  // Relative paths of files and folders that are not data:
  // - those for which IsSideEntry() is true;
  // - folders of runs and of checkpoints;
  // - a run's own files, if the data lies in the folder of a run.
  // For a folder, only its own path is listed.
  std::vector<std::string> side_entries;
};

// Returns true for names that programs leave beside data: hidden entries (.git, .nfs000012,
// temporary files of rsync), backups of editors, parts of downloads, and folders of operating
// systems.
bool IsSideEntry(absl::string_view name);

// Returns the file at `path`, or all files of the folder tree at `path` except side entries. They
// are sorted bytewise by relative path, so that machines with the same tree agree. Links are
// followed, and a folder that is reached a second time is skipped. Errors: NotFound if there is
// nothing at `path`, or a link leads nowhere; PermissionDenied; InvalidArgument for an entry that
// is neither file nor folder.
absl::StatusOr<CorpusListing> ListCorpusFiles(const std::string& path);

// Return true if there is a folder, or a file, at `path`.
bool IsFolder(const std::string& path);
bool IsFile(const std::string& path);

}  // namespace lodestar::data
