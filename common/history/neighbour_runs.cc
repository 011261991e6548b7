// SPDX-License-Identifier: Apache-2.0

#include "common/history/neighbour_runs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/history/history_thinning.h"
#include "common/runtime/file_descriptor.h"
#include "common/runtime/file_io.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"

namespace lodestar::history {
namespace {

constexpr size_t kMaxNameBytes = 255;  // limit of file systems for the name of a folder
constexpr int kReads = 3;  // maximum number of attempts to read a file that is being changed

// Identifies a folder or file as long as it exists.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

FileIdentity IdentityOf(const struct stat& facts) { return {facts.st_dev, facts.st_ino}; }

// A folder with a history file.
struct FoundRun {
  std::string path;  // path of the folder
  std::string name;  // name of the run in the list
  FileDescriptor folder;
  struct stat history = {};
};

absl::StatusOr<FileDescriptor> OpenFolder(const std::string& path) {
  FileDescriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) return ErrnoStatus(errno, "open", path);
  return folder;
}

// Returns the names of the folders in `folder`, without hidden ones. Names of an unknown type are
// included. Looks at no more than `most` entries, and sets *is_cut to true if there are more.
absl::StatusOr<std::vector<std::string>> NamesIn(const FileDescriptor& folder,
                                                 const std::string& path, int most, bool* is_cut) {
  const int own = openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (own < 0) return ErrnoStatus(errno, "open", path);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(fdopendir(own), &closedir);
  if (entries == nullptr) {
    const int error = errno;
    close(own);
    return ErrnoStatus(error, "list", path);
  }
  std::vector<std::string> names;
  for (int i = 0; const dirent* const entry = readdir(entries.get()); ++i) {
    *is_cut = i == most;
    if (*is_cut) break;
    const bool may_be_folder = entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN;
    if (may_be_folder && entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  return names;
}

class Search {
 public:
  // Searches `folder`, whose path is `path`, for runs. `prefix` is put before their names in the
  // list.
  absl::Status LookIn(const FileDescriptor& folder, const std::string& path,
                      const std::string& prefix) {
    bool is_cut = false;
    ASSIGN_OR_RETURN(const std::vector<std::string> names,
                     NamesIn(folder, path, NeighbourRuns::kMaxEntries, &is_cut));
    if (is_cut) {
      notes.push_back(absl::StrCat("folder ", PeerText(path, PATH_MAX), " has more than ",
                                   NeighbourRuns::kMaxEntries, " entries; only ",
                                   NeighbourRuns::kMaxEntries, " of them were searched for runs"));
    }
    for (const std::string& name : names) {
      FileDescriptor run(
          openat(folder.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      struct stat run_facts, history;
      if (!run.is_open() || fstat(run.get(), &run_facts) != 0 ||
          fstatat(run.get(), kHistoryFileName, &history, AT_SYMLINK_NOFOLLOW) != 0) {
        continue;  // not a folder, not readable for this user, or without a history
      }
      if (IdentityOf(run_facts) == own_folder || IdentityOf(history) == own_history) continue;
      Keep({.path = absl::StrCat(path, "/", name),
            .name = absl::StrCat(prefix, PeerText(name, kMaxNameBytes)),
            .folder = std::move(run),
            .history = history});
    }
    return absl::OkStatus();
  }

  FileIdentity own_folder;
  FileIdentity own_history;
  std::vector<FoundRun> runs;  // the run written last comes first
  int num_left_out = 0;
  std::vector<std::string> notes;

 private:
  // Adds `run`, and drops the oldest run if there are more than kMaxRuns. So no more descriptors
  // than that are open.
  void Keep(FoundRun run) {
    const auto is_newer = [](const FoundRun& a, const FoundRun& b) {
      return std::tie(b.history.st_mtim.tv_sec, b.history.st_mtim.tv_nsec, a.name) <
             std::tie(a.history.st_mtim.tv_sec, a.history.st_mtim.tv_nsec, b.name);
    };
    runs.insert(std::upper_bound(runs.begin(), runs.end(), run, is_newer), std::move(run));
    if (runs.size() <= NeighbourRuns::kMaxRuns) return;
    runs.pop_back();
    ++num_left_out;
  }
};

absl::StatusOr<Search> FindRuns(const std::string& run_folder, std::string* around) {
  // Links are followed in the path that the operator has given. (All other links are not followed.)
  std::error_code error;
  const std::filesystem::path own = std::filesystem::canonical(run_folder, error);
  if (error) return ErrnoStatus(error.value(), "find", run_folder);
  *around = own.parent_path().string();
  ASSIGN_OR_RETURN(const FileDescriptor own_folder, OpenFolder(own.string()));
  ASSIGN_OR_RETURN(const FileDescriptor parent, OpenFolder(*around));
  Search search;
  struct stat facts;
  if (fstat(own_folder.get(), &facts) == 0) search.own_folder = IdentityOf(facts);
  if (fstatat(own_folder.get(), kHistoryFileName, &facts, 0) == 0) {
    search.own_history = IdentityOf(facts);
  }
  RETURN_IF_ERROR(search.LookIn(parent, *around, ""));
  const std::string name = PeerText(own.filename().string(), kMaxNameBytes);
  RETURN_IF_ERROR(search.LookIn(own_folder, own.string(), absl::StrCat(name, "/")));
  return search;
}

// A history file on disk. It is read without a lock, and is never written.
class HistoryFile {
 public:
  static absl::StatusOr<HistoryFile> Open(const FoundRun& run) {
    HistoryFile file;
    file.folder_ = run.folder.get();
    file.path_ = PeerText(absl::StrCat(run.path, "/", kHistoryFileName), PATH_MAX);
    // O_NONBLOCK: opening a pipe must not wait for a writer.
    file.file_.Reset(openat(file.folder_, kHistoryFileName,
                            O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!file.file_.is_open()) {
      return errno == ELOOP ? file.NotRegular() : ErrnoStatus(errno, "open", file.path_);
    }
    struct stat facts;
    if (fstat(file.file_.get(), &facts) != 0) return ErrnoStatus(errno, "examine", file.path_);
    if (!S_ISREG(facts.st_mode)) return file.NotRegular();
    if (facts.st_size > NeighbourRuns::kMaxFileBytes) {
      return absl::FailedPreconditionError(absl::StrCat(file.path_, " has ", facts.st_size,
                                                        " bytes, but a run history has at most ",
                                                        NeighbourRuns::kMaxFileBytes));
    }
    return file;
  }

  const std::string& path() const { return path_; }

  // Reads at most `size` bytes from the beginning.
  absl::StatusOr<std::string> ReadBeginning(size_t size) const {
    std::string bytes(size, '\0');
    size_t count = 0;
    while (count < size) {
      const ssize_t read =
          pread(file_.get(), bytes.data() + count, size - count, static_cast<off_t>(count));
      if (read < 0 && errno == EINTR) continue;
      if (read < 0) return ErrnoStatus(errno, "read", path_);
      if (read == 0) break;
      count += static_cast<size_t>(read);
    }
    bytes.resize(count);
    return bytes;
  }

  // Reads the whole file. If the file changes meanwhile, reads it again, so that the result is
  // never half of a change.
  absl::StatusOr<std::string> ReadWhole() const {
    for (int i = 0; i < kReads; ++i) {
      const std::optional<State> before = Look();
      if (!before.has_value()) continue;
      ASSIGN_OR_RETURN(std::string bytes, ReadBeginning(static_cast<size_t>(before->size)));
      if (Look() == before) return bytes;
    }
    return absl::UnavailableError(
        absl::StrCat(path_,
                     " is being written, or a killed server left it half written. Try again; if it "
                     "stays so, run psctl history ",
                     path_, " to undo the unfinished part"));
  }

 private:
  struct State {
    off_t size;
    time_t seconds;
    long nanoseconds;
    friend bool operator==(const State&, const State&) = default;
  };

  // Returns the state of the file. Returns nullopt during a change, while SQLite keeps a journal
  // beside the file.
  std::optional<State> Look() const {
    struct stat facts;
    const std::string journal = absl::StrCat(kHistoryFileName, "-journal");
    if (fstatat(folder_, journal.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0) return std::nullopt;
    if (fstat(file_.get(), &facts) != 0 || facts.st_size > NeighbourRuns::kMaxFileBytes) {
      return std::nullopt;
    }
    return State{facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec};
  }

  absl::Status NotRegular() const {
    return absl::FailedPreconditionError(absl::StrCat(path_, " is not a regular file"));
  }

  int folder_ = -1;  // descriptor of the run's folder
  std::string path_;
  FileDescriptor file_;
};

absl::Status CheckIsHistory(const FoundRun& run) {
  ASSIGN_OR_RETURN(const HistoryFile file, HistoryFile::Open(run));
  ASSIGN_OR_RETURN(const std::string beginning, file.ReadBeginning(kHistoryHeaderBytes));
  if (MayBeHistory(beginning)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(file.path(),
                                          " is not a run history that this release can read: it is "
                                          "damaged, or another program wrote it"));
}

absl::StatusOr<RunHistory> ReadWholeHistory(const FoundRun& run) {
  ASSIGN_OR_RETURN(const HistoryFile file, HistoryFile::Open(run));
  ASSIGN_OR_RETURN(const std::string image, file.ReadWhole());
  return ParseHistory(image, file.path());
}

}  // namespace

absl::StatusOr<RunHistory> ReadHistoryUntouched(const std::string& run_folder) {
  FoundRun run = {.path = run_folder, .name = {}, .folder = {}};
  ASSIGN_OR_RETURN(run.folder, OpenFolder(run_folder));
  return ReadWholeHistory(run);
}

absl::StatusOr<NeighbourList> NeighbourRuns::List() const {
  NeighbourList list;
  ASSIGN_OR_RETURN(Search search, FindRuns(run_folder_, &list.folder));
  list.folder = PeerText(list.folder, PATH_MAX);
  for (const FoundRun& run : search.runs) {
    list.runs.push_back({.name = run.name,
                         .written = absl::TimeFromTimespec(run.history.st_mtim),
                         .unreadable = std::string(CheckIsHistory(run).message())});
  }
  list.notes = std::move(search.notes);
  if (search.num_left_out > 0) {
    list.notes.push_back(absl::StrCat(
        search.num_left_out, " older runs were left out: the list has at most ", kMaxRuns));
  }
  return list;
}

absl::StatusOr<RunHistory> NeighbourRuns::Read(const std::string& name) const {
  std::string around;
  ASSIGN_OR_RETURN(const Search search, FindRuns(run_folder_, &around));
  const auto run = std::find_if(search.runs.begin(), search.runs.end(),
                                [&name](const FoundRun& run) { return run.name == name; });
  if (run == search.runs.end()) {
    return absl::NotFoundError(absl::StrCat("there is no run '", PeerText(name, kMaxNameBytes),
                                            "' to compare with in ", PeerText(around, PATH_MAX),
                                            "; /api/runs lists the runs in that folder"));
  }
  ASSIGN_OR_RETURN(RunHistory history, ReadWholeHistory(*run));
  ThinCurves(kMaxPoints, history);
  history.events.clear();
  return history;
}

}  // namespace lodestar::history
