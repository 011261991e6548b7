// SPDX-License-Identifier: Apache-2.0

#include "common/storage/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crc32c/crc32c.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "common/storage/folder_sync.h"
#include "common/storage/journal_name.h"

namespace lodestar::storage {
namespace {

class RealWritableFile final : public WritableFile {
 public:
  RealWritableFile(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}
  ~RealWritableFile() override {
    if (descriptor_ >= 0) close(descriptor_);
  }

  absl::Status Append(absl::string_view bytes) override {
    return WriteAll(descriptor_, bytes, path_);
  }
  absl::Status Sync() override {
    if (fdatasync(descriptor_) != 0) return ErrnoStatus(errno, "sync", path_);
    return absl::OkStatus();
  }
  absl::Status Close() override {
    if (close(std::exchange(descriptor_, -1)) != 0) return ErrnoStatus(errno, "close", path_);
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  int descriptor_;
};

class RealHeldFile final : public HeldFile {
 public:
  RealHeldFile(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}
  ~RealHeldFile() override { close(descriptor_); }

  absl::Status CheckName() override {
    struct stat held, named;
    if (fstat(descriptor_, &held) != 0) return ErrnoStatus(errno, "examine", path_);
    if (stat(path_.c_str(), &named) != 0) {
      return errno == ENOENT ? NameIsLost(path_) : ErrnoStatus(errno, "examine", path_);
    }
    const bool is_same = held.st_dev == named.st_dev && held.st_ino == named.st_ino;
    return is_same ? absl::OkStatus() : NameIsLost(path_);
  }
  absl::Status Read(absl::FunctionRef<absl::Status(absl::string_view block)> take) override {
    if (lseek(descriptor_, 0, SEEK_SET) != 0) return ErrnoStatus(errno, "read", path_);
    return ReadBlocks(descriptor_, path_, take);
  }

 private:
  const std::string path_;
  const int descriptor_;
};

int FlagOf(FileSystem::IfExists if_exists) {
  switch (if_exists) {
    case FileSystem::IfExists::kTruncate:
      return O_TRUNC;
    case FileSystem::IfExists::kFail:
      return O_EXCL;
    case FileSystem::IfExists::kGoOn:
      return O_APPEND;
  }
  return O_EXCL;
}

constexpr mode_t kOwnerOnly = 0600;

// If `path` is a file of a journal, makes it readable for its owner only. Earlier releases wrote
// such files readable for all users. A file of another user stays as it is.
void CloseToOthers(const std::string& path) {
  struct stat info;
  if (!IsOfJournal(path) || lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  if ((info.st_mode & ALLPERMS & ~kOwnerOnly) != 0) chmod(path.c_str(), kOwnerOnly);
}

class RealFileSystem final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                       IfExists if_exists) override {
    constexpr mode_t kMode = 0644;
    CloseToOthers(path);
    // O_NONBLOCK: opening a FIFO must not wait for its reader.
    const int descriptor =
        open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | FlagOf(if_exists),
             IsOfJournal(path) ? kOwnerOnly : kMode);
    if (descriptor < 0) return ErrnoStatus(errno, "create", path);
    return std::make_unique<RealWritableFile>(path, descriptor);
  }

  absl::StatusOr<FileBytes> Map(const std::string& path) override {
    CloseToOthers(path);
    ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
    auto memory = std::make_shared<const MappedFile>(std::move(mapped));
    const absl::Span<const uint8_t> bytes = memory->bytes();
    return FileBytes{path, bytes, std::move(memory)};
  }

  absl::Status Read(const std::string& path,
                    absl::FunctionRef<absl::Status(absl::string_view block)> take) override {
    CloseToOthers(path);
    return ReadBlocks(path, take);
  }

  absl::StatusOr<std::unique_ptr<HeldFile>> Hold(const std::string& path) override {
    ASSIGN_OR_RETURN(const OpenedFile file, OpenRegularFile(path));
    return std::make_unique<RealHeldFile>(path, file.descriptor);
  }

  absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes) override {
    return lodestar::ReadWholeFile(path, max_bytes);
  }

  absl::Status CreateDirectories(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return ErrnoStatus(error.value(), "create directory", path);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::directory_iterator entry(directory, error);
    if (error == std::errc::no_such_file_or_directory) return names;
    while (!error && entry != std::filesystem::directory_iterator()) {
      names.push_back(entry->path().filename().string());
      entry.increment(error);
    }
    if (error) return ErrnoStatus(error.value(), "list directory", directory);
    return names;
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (std::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("rename ", from, " to"), to);
  }

  absl::Status RemoveAll(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) return ErrnoStatus(error.value(), "remove", path);
    return absl::OkStatus();
  }

  absl::Status SyncDirectory(const std::string& path) override { return FsyncDirectory(path); }

  bool Exists(const std::string& path) override {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
  }

  bool IsDirectory(const std::string& path) override {
    std::error_code ignored;
    return std::filesystem::is_directory(path, ignored);
  }

  bool AreSame(const std::string& path, const std::string& other) override {
    std::error_code ignored;
    return std::filesystem::equivalent(path, other, ignored);
  }

  std::optional<int64_t> FreeBytes(const std::string& path) override {
    struct statvfs info;
    if (statvfs(path.c_str(), &info) != 0 || info.f_blocks == 0) return std::nullopt;
    return static_cast<int64_t>(info.f_bavail * info.f_frsize);
  }

  std::optional<absl::Duration> AgeOf(const std::string& path) override {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) return std::nullopt;
    return absl::Now() - absl::TimeFromTimespec(info.st_mtim);
  }
};

}  // namespace

FileSystem& FileSystem::Real() {
  static auto* const real = new RealFileSystem;
  return *real;
}

SequentialFileWriter::SequentialFileWriter(std::string path, std::unique_ptr<WritableFile> file)
    : path_(std::move(path)), file_(std::move(file)) {}

std::string UnusedPath(FileSystem& file_system, absl::string_view path) {
  std::string unused(path);
  for (int number = 2; file_system.Exists(unused); ++number) {
    unused = absl::StrCat(path, ".", number);
  }
  return unused;
}

absl::StatusOr<SequentialFileWriter> SequentialFileWriter::Create(FileSystem& file_system,
                                                                  const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                   file_system.Create(path, FileSystem::IfExists::kTruncate));
  return SequentialFileWriter(path, std::move(file));
}

absl::StatusOr<SequentialFileWriter> SequentialFileWriter::CreateNew(FileSystem& file_system,
                                                                     const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                   file_system.Create(path, FileSystem::IfExists::kFail));
  return SequentialFileWriter(path, std::move(file));
}

absl::Status SequentialFileWriter::Append(const void* data, size_t size) {
  constexpr size_t kBufferBytes = 1 << 20;
  crc32c_ = crc32c::Crc32c(data, size, crc32c_);
  num_bytes_ += static_cast<int64_t>(size);
  if (buffer_.size() + size <= kBufferBytes) {
    buffer_.append(static_cast<const char*>(data), size);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Flush());
  return file_->Append({static_cast<const char*>(data), size});
}

absl::Status SequentialFileWriter::Flush() {
  if (buffer_.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(file_->Append(buffer_));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status SequentialFileWriter::Finish(bool sync) {
  RETURN_IF_ERROR(Flush());
  if (sync) RETURN_IF_ERROR(file_->Sync());
  return file_->Close();
}

}  // namespace lodestar::storage
