// SPDX-License-Identifier: Apache-2.0

#include "server/durability/replica/summed_file_system.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/crc32c/crc32c.h"
#include "common/runtime/status_macros.h"

namespace lodestar::replica {

// A File calculates the checksum of what one writer appends.
class SummedFileSystem::File final : public storage::WritableFile {
 public:
  File(SummedFileSystem* owner, std::string path, uint64_t writer, std::optional<FileSum> before,
       std::unique_ptr<storage::WritableFile> file)
      : owner_(owner),
        path_(std::move(path)),
        writer_(writer),
        sum_(before),
        file_(std::move(file)) {}

  absl::Status Append(absl::string_view bytes) override {
    owner_->SetSum(path_, writer_, std::nullopt);
    const absl::Status appended = file_->Append(bytes);
    if (!appended.ok()) sum_.reset();
    if (!sum_.has_value()) return appended;
    sum_->num_bytes += static_cast<int64_t>(bytes.size());
    sum_->crc32c = crc32c::Crc32c(bytes.data(), bytes.size(), sum_->crc32c);
    return appended;
  }
  absl::Status Sync() override {
    const absl::Status synced = file_->Sync();
    if (!synced.ok()) sum_.reset();
    owner_->SetSum(path_, writer_, sum_);
    return synced;
  }
  absl::Status Close() override { return file_->Close(); }

 private:
  SummedFileSystem* const owner_;
  const std::string path_;
  const uint64_t writer_;
  std::optional<FileSum> sum_;  // not set: the contents of the file are not known
  const std::unique_ptr<storage::WritableFile> file_;
};

void SummedFileSystem::SetSum(const std::string& path, uint64_t writer,
                              const std::optional<FileSum>& sum) {
  absl::MutexLock lock(&mutex_);
  const auto entry = entries_.find(path);
  // If another writer has opened this path since then, the sum belongs to another file.
  if (entry != entries_.end() && entry->second.writer == writer) entry->second.sum = sum;
}

void SummedFileSystem::Forget(const std::string& path) {
  entries_.erase(path);
  const std::string below = absl::StrCat(path, "/");
  auto entry = entries_.lower_bound(below);
  while (entry != entries_.end() && absl::StartsWith(entry->first, below)) {
    entry = entries_.erase(entry);
  }
}

absl::StatusOr<FileSum> SummedFileSystem::Sum(const std::string& path) {
  {
    absl::MutexLock lock(&mutex_);
    const auto entry = entries_.find(path);
    if (entry != entries_.end() && entry->second.sum.has_value()) return *entry->second.sum;
  }
  FileSum sum;
  RETURN_IF_ERROR(disk().Read(path, [&sum](absl::string_view block) {
    sum.num_bytes += static_cast<int64_t>(block.size());
    sum.crc32c = crc32c::Crc32c(block.data(), block.size(), sum.crc32c);
    return absl::OkStatus();
  }));
  absl::MutexLock lock(&mutex_);
  // If another thread has opened the file for writing during the read, the sum may be wrong. It is
  // then not stored.
  entries_.try_emplace(path, Entry{.writer = 0, .sum = sum});
  return sum;
}

bool SummedFileSystem::IsSynced(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  const auto entry = entries_.find(path);
  return entry != entries_.end() && entry->second.writer != 0 && entry->second.sum.has_value();
}

std::vector<std::string> SummedFileSystem::Gone(const std::string& folder) {
  const std::string below = absl::StrCat(folder, "/");
  std::vector<std::string> gone;
  {
    absl::MutexLock lock(&mutex_);
    for (auto entry = entries_.lower_bound(below);
         entry != entries_.end() && absl::StartsWith(entry->first, below); ++entry) {
      if (entry->second.sum.has_value()) gone.push_back(entry->first);
    }
  }
  std::erase_if(gone, [this](const std::string& path) { return disk().Exists(path); });
  return gone;
}

absl::StatusOr<std::unique_ptr<storage::WritableFile>> SummedFileSystem::Create(
    const std::string& path, IfExists if_exists) {
  // The entry is replaced before the file is opened. So no other thread stores a sum of the old
  // contents.
  std::optional<FileSum> before;
  uint64_t writer = 0;
  {
    absl::MutexLock lock(&mutex_);
    writer = ++last_writer_;
    Entry& entry = entries_[path];
    if (if_exists == IfExists::kGoOn) {
      before = entry.sum;
    } else {
      before = FileSum();
    }
    entry = {.writer = writer, .sum = std::nullopt};
  }
  ASSIGN_OR_RETURN(std::unique_ptr<storage::WritableFile> file, disk().Create(path, if_exists));
  return std::make_unique<File>(this, path, writer, before, std::move(file));
}

// The sum of a renamed file is forgotten, because a crash may undo the rename. Files in a renamed
// directory keep their sums under their new paths.
absl::Status SummedFileSystem::Rename(const std::string& from, const std::string& to) {
  const absl::Status renamed = disk().Rename(from, to);
  absl::MutexLock lock(&mutex_);
  std::map<std::string, Entry> moved;
  const std::string below = absl::StrCat(from, "/");
  for (auto entry = entries_.lower_bound(below);
       entry != entries_.end() && absl::StartsWith(entry->first, below); ++entry) {
    moved[absl::StrCat(to, "/", entry->first.substr(below.size()))] = entry->second;
  }
  Forget(from);
  Forget(to);
  if (renamed.ok()) entries_.merge(moved);
  return renamed;
}

absl::Status SummedFileSystem::RemoveAll(const std::string& path) {
  const absl::Status removed = disk().RemoveAll(path);
  absl::MutexLock lock(&mutex_);
  Forget(path);
  return removed;
}

}  // namespace lodestar::replica
