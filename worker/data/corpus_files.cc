#include "worker/data/corpus_files.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

absl::StatusOr<std::vector<std::string>> EntryNames(const std::string& path) {
  std::unique_ptr<DIR, CloseDirectory> directory(opendir(path.c_str()));
  if (directory == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot list data folder ", path));
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(directory.get())) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot list data folder ", path));
  std::sort(names.begin(), names.end());
  return names;
}

// Walks depth first in order of names, so which of two ways to a folder counts as the first is the
// same everywhere.
class TreeWalk {
 public:
  absl::Status Visit(const std::string& path, const std::string& relative_path) {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) {
      if (errno == ELOOP) return absl::OkStatus();  // a link that only leads to itself
      if (errno == ENOENT && lstat(path.c_str(), &info) == 0) {
        return absl::NotFoundError(absl::StrCat(
            "data file ", path, " is a link that leads nowhere; mend it or take it away"));
      }
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot read data file ", path));
    }
    if (S_ISDIR(info.st_mode)) return VisitFolder(path, relative_path, info);
    if (!S_ISREG(info.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " is neither a file nor a folder; data must be regular files"));
    }
    files_.push_back({path, relative_path, static_cast<int64_t>(info.st_size)});
    return absl::OkStatus();
  }

  std::vector<CorpusFile> TakeFiles() { return std::move(files_); }

 private:
  absl::Status VisitFolder(const std::string& path, const std::string& relative_path,
                           const struct stat& info) {
    if (!visited_.insert({info.st_dev, info.st_ino}).second) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::vector<std::string> names, EntryNames(path));
    for (const std::string& name : names) {
      const std::string below =
          relative_path.empty() ? name : absl::StrCat(relative_path, "/", name);
      RETURN_IF_ERROR(Visit(absl::StrCat(path, "/", name), below));
    }
    return absl::OkStatus();
  }

  std::set<std::pair<dev_t, ino_t>> visited_;
  std::vector<CorpusFile> files_;
};

bool HasType(const std::string& path, mode_t type) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && (info.st_mode & S_IFMT) == type;
}

}  // namespace

absl::StatusOr<std::vector<CorpusFile>> ListCorpusFiles(const std::string& path) {
  TreeWalk walk;
  RETURN_IF_ERROR(walk.Visit(path, ""));
  std::vector<CorpusFile> files = walk.TakeFiles();
  if (files.size() == 1 && files[0].relative_path.empty()) {
    files[0].relative_path = path.substr(path.rfind('/') + 1);
  }
  std::sort(files.begin(), files.end(), [](const CorpusFile& a, const CorpusFile& b) {
    return a.relative_path < b.relative_path;
  });
  return files;
}

bool IsFolder(const std::string& path) { return HasType(path, S_IFDIR); }

bool IsFile(const std::string& path) { return HasType(path, S_IFREG); }

}  // namespace lodestar
