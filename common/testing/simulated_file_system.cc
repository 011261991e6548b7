// SPDX-License-Identifier: Apache-2.0

#include "common/testing/simulated_file_system.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/runtime/check.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"

namespace lodestar {
namespace {

std::vector<std::string> NamesOf(const std::string& path) {
  return absl::StrSplit(path, '/',
                        [](absl::string_view name) { return !name.empty() && name != "."; });
}

bool Flip(std::mt19937_64& chance) { return (chance() & 1) != 0; }

// Returns a content that a file may have after a crash. `written` is its content before the crash,
// of which the first `num_synced` bytes are on disk.
std::string Torn(const std::string& written, size_t num_synced, std::mt19937_64& chance) {
  const size_t num_unsynced = written.size() - num_synced;
  size_t num_kept = 0;
  switch (chance() % 4) {
    case 0:
      break;
    case 1:
      num_kept = num_unsynced;
      break;
    default:
      num_kept = chance() % num_unsynced;
  }
  std::string left = written.substr(0, num_synced + num_kept);
  switch (chance() % 4) {
    case 0:  // the new length is on disk, the bytes are not
      left.resize(written.size(), '\0');
      break;
    case 1:
      while (left.size() < written.size()) left.push_back(static_cast<char>(chance()));
      break;
    default:
      break;
  }
  return left;
}

}  // namespace

// A file or a directory. A node that was removed still exists as long as a NameChange in `unsynced`
// refers to it.
struct SimulatedFileSystem::Node {
  using Names = std::map<std::string, std::shared_ptr<Node>, std::less<>>;

  struct NameChange {
    std::string removed;  // name that the change removes; empty means none
    std::string added;    // name that the change adds; empty means none
    std::shared_ptr<Node> node;

    void ApplyTo(Names& names) const {
      if (const auto old = names.find(removed); old != names.end() && old->second == node) {
        names.erase(old);
      }
      if (!added.empty()) names[added] = node;
    }
  };

  explicit Node(bool is_directory) : is_directory(is_directory) {}

  const bool is_directory;
  bool is_named = false;

  // Content of a file. Mappings share it. A write to a mapped file first replaces it by a copy.
  std::shared_ptr<std::string> contents = std::make_shared<std::string>();
  size_t num_synced = 0;
  // Content on disk of a file that was truncated and not synced since then. Null means that no
  // truncation can be undone by a crash.
  std::shared_ptr<std::string> before_truncation;

  // Entries of a directory. Programs see `names`, and `synced_names` are on disk.
  Names names;
  Names synced_names;
  std::vector<NameChange> unsynced;  // changes that lead from synced_names to names

  void Change(NameChange change) {
    change.ApplyTo(names);
    unsynced.push_back(std::move(change));
  }

  void Truncate() {
    if (num_synced > 0) {
      before_truncation = std::make_shared<std::string>(contents->substr(0, num_synced));
    }
    contents = std::make_shared<std::string>();
    num_synced = 0;
  }

  void SyncFile() {
    num_synced = contents->size();
    before_truncation = nullptr;
  }

  void SyncNames() {
    for (const NameChange& change : unsynced) change.ApplyTo(synced_names);
    unsynced.clear();
  }

  // Simulates a crash. In this node and in all nodes below it, what was not synced may be lost.
  // Returns the size of all files in bytes.
  int64_t Crash(std::mt19937_64& chance) {
    is_named = true;
    if (is_directory) return CrashDirectory(chance);
    if (before_truncation != nullptr && Flip(chance)) {
      contents = before_truncation;
    } else if (num_synced < contents->size()) {
      contents = std::make_shared<std::string>(Torn(*contents, num_synced, chance));
    }
    SyncFile();
    return static_cast<int64_t>(contents->size());
  }

  int64_t CrashDirectory(std::mt19937_64& chance) {
    for (auto& [name, node] : names) node->is_named = false;
    // Changes are visited from last to first. If a change is kept, all earlier changes of the same
    // names must be kept also.
    std::set<std::string> needed;
    std::vector<NameChange> reached_disk;
    for (auto change = unsynced.rbegin(); change != unsynced.rend(); ++change) {
      const bool is_needed = needed.count(change->removed) > 0 || needed.count(change->added) > 0;
      if (!is_needed && Flip(chance)) continue;
      for (const std::string& name : {change->removed, change->added}) {
        if (!name.empty()) needed.insert(name);
      }
      reached_disk.push_back(std::move(*change));
    }
    std::reverse(reached_disk.begin(), reached_disk.end());
    unsynced = std::move(reached_disk);
    SyncNames();
    names = synced_names;
    int64_t num_bytes = 0;
    for (auto& [name, node] : names) num_bytes += node->Crash(chance);
    return num_bytes;
  }
};

class SimulatedFileSystem::OpenFile final : public storage::WritableFile {
 public:
  OpenFile(SimulatedFileSystem* disk, std::string path, std::shared_ptr<Node> node)
      : disk_(disk),
        path_(std::move(path)),
        node_(std::move(node)),
        num_crashes_(disk->num_crashes_) {}

  absl::Status Append(absl::string_view bytes) override {
    RETURN_IF_ERROR(Ask(FileOperation::kAppend, "write"));
    return disk_->Append(*node_, path_, bytes);
  }
  absl::Status Sync() override {
    RETURN_IF_ERROR(Ask(FileOperation::kSync, "sync"));
    node_->SyncFile();
    return absl::OkStatus();
  }
  absl::Status Close() override {
    node_ = nullptr;
    return absl::OkStatus();
  }

 private:
  absl::Status Ask(FileOperation operation, absl::string_view action) const {
    LODESTAR_CHECK(node_ != nullptr) << path_ << " was closed";
    if (num_crashes_ != disk_->num_crashes_) return ErrnoStatus(EIO, action, path_);
    return disk_->Ask(operation, path_);
  }

  SimulatedFileSystem* const disk_;
  const std::string path_;
  std::shared_ptr<Node> node_;
  const int64_t num_crashes_;
};

class SimulatedFileSystem::Held final : public storage::HeldFile {
 public:
  Held(SimulatedFileSystem* disk, std::string path, std::shared_ptr<Node> node)
      : disk_(disk), path_(std::move(path)), node_(std::move(node)) {}

  absl::Status CheckName() override {
    return disk_->Find(path_) == node_ ? absl::OkStatus() : NameIsLost(path_);
  }
  absl::Status Read(absl::FunctionRef<absl::Status(absl::string_view block)> take) override {
    RETURN_IF_ERROR(disk_->Ask(FileOperation::kRead, path_));
    const std::shared_ptr<const std::string> contents = node_->contents;
    return contents->empty() ? absl::OkStatus() : take(*contents);
  }

 private:
  SimulatedFileSystem* const disk_;
  const std::string path_;
  const std::shared_ptr<Node> node_;
};

SimulatedFileSystem::SimulatedFileSystem() : root_(std::make_shared<Node>(/*is_directory=*/true)) {}

SimulatedFileSystem::~SimulatedFileSystem() = default;

void SimulatedFileSystem::Crash(std::mt19937_64& chance) {
  ++num_crashes_;
  used_bytes_ = root_->Crash(chance);
}

absl::Status SimulatedFileSystem::Ask(FileOperation operation, const std::string& path) const {
  return hook_ == nullptr ? absl::OkStatus() : hook_(operation, path);
}

SimulatedFileSystem::Place SimulatedFileSystem::Locate(const std::string& path) const {
  std::vector<std::string> names = NamesOf(path);
  if (names.empty()) return {};
  Place place = {root_.get(), std::move(names.back())};
  names.pop_back();
  for (const std::string& name : names) {
    const auto entry = place.directory->names.find(name);
    if (entry == place.directory->names.end() || !entry->second->is_directory) return {};
    place.directory = entry->second.get();
  }
  return place;
}

std::shared_ptr<SimulatedFileSystem::Node> SimulatedFileSystem::Find(
    const std::string& path) const {
  const Place place = Locate(path);
  if (place.directory == nullptr) return NamesOf(path).empty() ? root_ : nullptr;
  const auto entry = place.directory->names.find(place.name);
  return entry == place.directory->names.end() ? nullptr : entry->second;
}

absl::StatusOr<std::unique_ptr<storage::WritableFile>> SimulatedFileSystem::Create(
    const std::string& path, IfExists if_exists) {
  RETURN_IF_ERROR(Ask(FileOperation::kCreate, path));
  const Place place = Locate(path);
  if (place.directory == nullptr) return ErrnoStatus(ENOENT, "create", path);
  std::shared_ptr<Node> file = Find(path);
  if (file == nullptr) {
    file = std::make_shared<Node>(/*is_directory=*/false);
    file->is_named = true;
    place.directory->Change({"", place.name, file});
  } else if (if_exists == IfExists::kFail) {
    return ErrnoStatus(EEXIST, "create", path);
  } else if (file->is_directory) {
    return ErrnoStatus(EISDIR, "create", path);
  } else if (if_exists == IfExists::kTruncate) {
    used_bytes_ -= static_cast<int64_t>(file->contents->size());
    file->Truncate();
  }
  return std::make_unique<OpenFile>(this, path, std::move(file));
}

absl::Status SimulatedFileSystem::Append(Node& file, const std::string& path,
                                         absl::string_view bytes) {
  const int64_t room = std::max<int64_t>(capacity_bytes_ - used_bytes_, 0);
  const absl::string_view fitting = bytes.substr(0, static_cast<size_t>(room));
  if (file.contents.use_count() > 1) file.contents = std::make_shared<std::string>(*file.contents);
  absl::StrAppend(file.contents.get(), fitting);
  if (file.is_named) used_bytes_ += static_cast<int64_t>(fitting.size());
  return fitting.size() == bytes.size() ? absl::OkStatus() : ErrnoStatus(ENOSPC, "write", path);
}

absl::StatusOr<std::shared_ptr<const std::string>> SimulatedFileSystem::ContentsOf(
    const std::string& path, absl::string_view action) const {
  RETURN_IF_ERROR(Ask(FileOperation::kRead, path));
  const std::shared_ptr<Node> file = Find(path);
  if (file == nullptr) return ErrnoStatus(ENOENT, "open", path);
  if (file->is_directory) return ErrnoStatus(EISDIR, action, path);
  return std::shared_ptr<const std::string>(file->contents);
}

absl::StatusOr<storage::FileBytes> SimulatedFileSystem::Map(const std::string& path) {
  ASSIGN_OR_RETURN(std::shared_ptr<const std::string> contents, ContentsOf(path, "map"));
  const absl::Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(contents->data()),
                                        contents->size());
  return storage::FileBytes{path, bytes, std::move(contents)};
}

absl::Status SimulatedFileSystem::Read(
    const std::string& path, absl::FunctionRef<absl::Status(absl::string_view block)> take) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const std::string> contents, ContentsOf(path, "read"));
  return contents->empty() ? absl::OkStatus() : take(*contents);
}

absl::StatusOr<std::unique_ptr<storage::HeldFile>> SimulatedFileSystem::Hold(
    const std::string& path) {
  RETURN_IF_ERROR(Ask(FileOperation::kRead, path));
  std::shared_ptr<Node> node = Find(path);
  if (node == nullptr) return ErrnoStatus(ENOENT, "open", path);
  return std::make_unique<Held>(this, path, std::move(node));
}

absl::StatusOr<std::string> SimulatedFileSystem::ReadWholeFile(const std::string& path,
                                                               int64_t max_bytes) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const std::string> contents, ContentsOf(path, "read"));
  if (static_cast<int64_t>(contents->size()) <= max_bytes) return *contents;
  return absl::InvalidArgumentError(
      absl::StrCat(path, " has more than ", max_bytes, " bytes, the maximum for this file"));
}

absl::Status SimulatedFileSystem::CreateDirectories(const std::string& path) {
  Node* directory = root_.get();
  std::string reached;
  for (const std::string& name : NamesOf(path)) {
    absl::StrAppend(&reached, "/", name);
    auto entry = directory->names.find(name);
    if (entry == directory->names.end()) {
      RETURN_IF_ERROR(Ask(FileOperation::kCreateDirectory, reached));
      auto created = std::make_shared<Node>(/*is_directory=*/true);
      directory->Change({"", name, std::move(created)});
      entry = directory->names.find(name);
    }
    directory = entry->second.get();
    if (!directory->is_directory) return ErrnoStatus(ENOTDIR, "create directory", path);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> SimulatedFileSystem::List(const std::string& directory) {
  RETURN_IF_ERROR(Ask(FileOperation::kRead, directory));
  std::vector<std::string> names;
  const std::shared_ptr<Node> node = Find(directory);
  if (node == nullptr) return names;
  if (!node->is_directory) return ErrnoStatus(ENOTDIR, "list directory", directory);
  for (const auto& [name, entry] : node->names) names.push_back(name);
  return names;
}

absl::Status SimulatedFileSystem::Rename(const std::string& from, const std::string& to) {
  RETURN_IF_ERROR(Ask(FileOperation::kRename, from));
  const auto failed = [&](int error_number) {
    return ErrnoStatus(error_number, absl::StrCat("rename ", from, " to"), to);
  };
  const Place place = Locate(from);
  const std::shared_ptr<Node> node = Find(from);
  if (node == nullptr) return failed(ENOENT);
  const Place target = Locate(to);
  LODESTAR_CHECK(target.directory == place.directory)
      << from << " and " << to << " are not in one directory";
  const std::shared_ptr<Node> replaced = Find(to);
  if (replaced == node) return absl::OkStatus();
  if (replaced != nullptr) {
    if (replaced->is_directory && !node->is_directory) return failed(EISDIR);
    if (!replaced->is_directory && node->is_directory) return failed(ENOTDIR);
    if (!replaced->names.empty()) return failed(ENOTEMPTY);
    replaced->is_named = false;
    used_bytes_ -= static_cast<int64_t>(replaced->contents->size());
  }
  place.directory->Change({place.name, target.name, node});
  return absl::OkStatus();
}

absl::Status SimulatedFileSystem::RemoveAll(const std::string& path) {
  const Place place = Locate(path);
  if (place.directory == nullptr || place.directory->names.count(place.name) == 0) {
    return absl::OkStatus();
  }
  return RemoveEntry(*place.directory, place.name, path);
}

absl::Status SimulatedFileSystem::RemoveEntry(Node& directory, const std::string& name,
                                              const std::string& path) {
  const std::shared_ptr<Node> node = directory.names.at(name);
  while (!node->names.empty()) {
    const std::string below = node->names.begin()->first;
    RETURN_IF_ERROR(RemoveEntry(*node, below, absl::StrCat(path, "/", below)));
  }
  RETURN_IF_ERROR(Ask(FileOperation::kRemove, path));
  node->is_named = false;
  used_bytes_ -= static_cast<int64_t>(node->contents->size());
  directory.Change({name, "", node});
  return absl::OkStatus();
}

absl::Status SimulatedFileSystem::SyncDirectory(const std::string& path) {
  RETURN_IF_ERROR(Ask(FileOperation::kSyncDirectory, path));
  const std::shared_ptr<Node> node = Find(path);
  if (node == nullptr) return ErrnoStatus(ENOENT, "open directory", path);
  if (!node->is_directory) return ErrnoStatus(ENOTDIR, "open directory", path);
  node->SyncNames();
  return absl::OkStatus();
}

bool SimulatedFileSystem::Exists(const std::string& path) { return Find(path) != nullptr; }

bool SimulatedFileSystem::IsDirectory(const std::string& path) {
  const std::shared_ptr<Node> node = Find(path);
  return node != nullptr && node->is_directory;
}

bool SimulatedFileSystem::AreSame(const std::string& path, const std::string& other) {
  const std::shared_ptr<Node> node = Find(path);
  return node != nullptr && node == Find(other);
}

std::optional<int64_t> SimulatedFileSystem::FreeBytes(const std::string& /*path*/) {
  return std::max<int64_t>(capacity_bytes_ - used_bytes_, 0);
}

}  // namespace lodestar
