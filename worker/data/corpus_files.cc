// SPDX-License-Identifier: Apache-2.0

#include "worker/data/corpus_files.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/history/run_history.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "common/storage/folder_lock.h"

namespace lodestar::data {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

absl::StatusOr<std::vector<std::string>> EntryNames(const std::string& path) {
  std::unique_ptr<DIR, CloseDirectory> directory(opendir(path.c_str()));
  if (directory == nullptr) return ErrnoStatus(errno, "list data folder", path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(directory.get())) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) return ErrnoStatus(errno, "list data folder", path);
  std::sort(names.begin(), names.end());
  return names;
}

// Returns true for the names of files that a run keeps in its folder beside checkpoints.
bool IsOfRun(absl::string_view name) {
  return name == storage::kFolderLockName || name == checkpoints::kJournalFolder ||
         absl::StartsWith(name, history::kHistoryFileName);
}

// Walks a folder tree depth first, in the order of names. So if two paths lead to one folder, every
// machine uses the same path.
class TreeWalk {
 public:
  absl::Status Visit(const std::string& path, const std::string& relative_path) {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) {
      // Ignores a link that leads to itself.
      if (errno == ELOOP) return absl::OkStatus();
      if (errno == ENOENT && lstat(path.c_str(), &info) == 0) {
        return absl::NotFoundError(absl::StrCat(
            "data file ", path,
            " is a symbolic link to a file that does not exist; correct it or remove it"));
      }
      return ErrnoStatus(errno, "read data file", path);
    }
    if (S_ISDIR(info.st_mode)) return VisitFolder(path, relative_path, info);
    if (!S_ISREG(info.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, " is neither a regular file nor a folder; data must be regular files"));
    }
    listing_.files.push_back({path, relative_path, static_cast<int64_t>(info.st_size)});
    return absl::OkStatus();
  }

  CorpusListing TakeListing() { return std::move(listing_); }

 private:
  absl::Status VisitFolder(const std::string& path, const std::string& relative_path,
                           const struct stat& info) {
    if (!visited_.insert({info.st_dev, info.st_ino}).second) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::vector<std::string> names, EntryNames(path));
    const auto has = [&names](absl::string_view name) {
      return std::binary_search(names.begin(), names.end(), name);
    };
    const bool is_run = has(storage::kFolderLockName) && storage::HasFolderClaim(path);
    const bool is_checkpoint =
        has(checkpoints::kManifestName) && absl::StartsWith(names.back(), "shard-");
    if (!relative_path.empty() && (is_run || is_checkpoint)) {
      listing_.side_entries.push_back(relative_path);
      return absl::OkStatus();
    }
    for (const std::string& name : names) {
      const std::string below =
          relative_path.empty() ? name : absl::StrCat(relative_path, "/", name);
      if (IsSideEntry(name) || (is_run && IsOfRun(name))) {
        listing_.side_entries.push_back(below);
        continue;
      }
      RETURN_IF_ERROR(Visit(absl::StrCat(path, "/", name), below));
    }
    return absl::OkStatus();
  }

  std::set<std::pair<dev_t, ino_t>> visited_;
  CorpusListing listing_;
};

bool HasType(const std::string& path, mode_t type) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && (info.st_mode & S_IFMT) == type;
}

}  // namespace

bool IsSideEntry(absl::string_view name) {
  static constexpr absl::string_view kEnds[] = {
      "~", ".bak", ".orig", ".swp", ".tmp", ".part", ".partial", ".filepart", ".crdownload"};
  static constexpr absl::string_view kNames[] = {"lost+found", "__MACOSX", "Thumbs.db",
                                                 "desktop.ini"};
  const auto is_end = [name](absl::string_view end) { return absl::EndsWith(name, end); };
  return absl::StartsWith(name, ".") ||
         (absl::StartsWith(name, "#") && absl::EndsWith(name, "#")) ||
         std::any_of(std::begin(kEnds), std::end(kEnds), is_end) ||
         std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

absl::StatusOr<CorpusListing> ListCorpusFiles(const std::string& path) {
  TreeWalk walk;
  RETURN_IF_ERROR(walk.Visit(path, ""));
  CorpusListing listing = walk.TakeListing();
  std::vector<CorpusFile>& files = listing.files;
  if (files.size() == 1 && files[0].relative_path.empty()) {
    files[0].relative_path = path.substr(path.rfind('/') + 1);
  }
  std::sort(files.begin(), files.end(), [](const CorpusFile& a, const CorpusFile& b) {
    return a.relative_path < b.relative_path;
  });
  return listing;
}

bool IsFolder(const std::string& path) { return HasType(path, S_IFDIR); }

bool IsFile(const std::string& path) { return HasType(path, S_IFREG); }

}  // namespace lodestar::data
