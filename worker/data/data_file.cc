// SPDX-License-Identifier: Apache-2.0

#include "worker/data/data_file.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_kind.h"
#include "common/storage/git_lfs_pointer.h"

namespace lodestar::data {
namespace {

// Size of the pieces in which files are checked and then hashed. A piece fits into the second-level
// cache. So hashing does not read it from memory a second time.
constexpr int64_t kScanBytes = int64_t{1} << 18;
// 15 is the largest window of zlib. Adding 16 asks zlib for gzip, with header and checksum.
constexpr int kGzipWindowBits = 15 + 16;
constexpr size_t kInflateStepBytes = size_t{1} << 20;

std::string TimeText(int64_t seconds, int64_t nanoseconds) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%E3S %z",
                          absl::FromUnixSeconds(seconds) + absl::Nanoseconds(nanoseconds),
                          absl::LocalTimeZone());
}

// Owns a zlib stream over the bytes of `file`, which must outlive it.
class GzipReader {
 public:
  explicit GzipReader(const DataFile& file) : file_(file) {
    is_open_ = inflateInit2(&stream_, kGzipWindowBits) == Z_OK;
  }
  ~GzipReader() {
    if (is_open_) inflateEnd(&stream_);
  }
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Appends at most kInflateStepBytes to *output. Sets *is_done at the end of the file. A gzip file
  // may have several members, one after the other.
  absl::Status Step(std::vector<uint8_t>* output, bool* is_done) {
    if (!is_open_)
      return absl::ResourceExhaustedError("there is not enough memory for decompression");
    RETURN_IF_ERROR(Refill());
    const size_t old_size = output->size();
    output->resize(old_size + kInflateStepBytes);
    stream_.next_out = output->data() + old_size;
    stream_.avail_out = static_cast<uInt>(kInflateStepBytes);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    output->resize(output->size() - stream_.avail_out);
    *is_done = false;
    if (result == Z_STREAM_END) {
      RETURN_IF_ERROR(Refill());
      *is_done = stream_.avail_in == 0;
      if (!*is_done) inflateReset(&stream_);
      return absl::OkStatus();
    }
    if (result == Z_OK) return absl::OkStatus();
    const bool is_short = result == Z_BUF_ERROR && stream_.avail_in == 0;
    return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": damaged at offset ",
                                                   fed_ - stream_.avail_in, " of ",
                                                   file_.num_bytes(), " compressed bytes: ",
                                                   is_short                 ? "the file ends early"
                                                   : stream_.msg != nullptr ? stream_.msg
                                                                            : "not gzip data",
                                                   "; copy the file again or make it anew"));
  }

 private:
  absl::Status Refill() {
    if (stream_.avail_in > 0) return absl::OkStatus();
    input_.resize(std::min(kScanBytes, file_.num_bytes() - fed_));
    RETURN_IF_ERROR(file_.Read(fed_, absl::MakeSpan(input_)));
    stream_.next_in = input_.data();
    stream_.avail_in = static_cast<uInt>(input_.size());
    fed_ += static_cast<int64_t>(input_.size());
    return absl::OkStatus();
  }

  const DataFile& file_;
  std::vector<uint8_t> input_;
  int64_t fed_ = 0;  // Bytes of the file that zlib has got.
  z_stream stream_ = {};
  bool is_open_ = false;
};

// Checks that a file begins like gzip data.
absl::Status CheckGzip(const DataFile& file) {
  constexpr int64_t kStartBytes = 512;
  std::vector<uint8_t> start(std::min(kStartBytes, file.num_bytes()));
  RETURN_IF_ERROR(file.Read(0, absl::MakeSpan(start)));
  if (start.size() >= 2 && start[0] == 0x1f && start[1] == 0x8b) return absl::OkStatus();
  const std::string kind = storage::KindInWords(start);
  return absl::InvalidArgumentError(absl::StrCat(
      file.path(), ": the name says gzip data, but the file is ", kind, "; ",
      absl::StartsWith(kind, "IDX") ? "remove .gz from its name" : "download it or make it again"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const DataFile>> DataFile::Open(const std::string& path,
                                                               Descriptor descriptor) {
  ASSIGN_OR_RETURN(const OpenedFile opened, OpenRegularFile(path));
  std::shared_ptr<DataFile> file(new DataFile());
  file->path_ = path;
  file->descriptor_ = opened.descriptor;
  file->identity_ = IdentityOf(opened.facts);
  file->num_bytes_ = file->identity_.num_bytes;
  std::vector<uint8_t> start(file->num_bytes_ <= storage::kMaxGitLfsPointerBytes ? file->num_bytes_
                                                                                 : 0);
  RETURN_IF_ERROR(file->Read(0, absl::MakeSpan(start)));
  RETURN_IF_ERROR(storage::CheckNotGitLfsPointer(path, start));
  if (descriptor == Descriptor::kPerRead) close(std::exchange(file->descriptor_, -1));
  return file;
}

absl::StatusOr<std::shared_ptr<const DataFile>> DataFile::Inflate(const std::string& path,
                                                                  int64_t header_bytes,
                                                                  Announcement announce) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const DataFile> compressed, Open(path));
  RETURN_IF_ERROR(CheckGzip(*compressed));
  std::shared_ptr<DataFile> file(new DataFile());
  file->path_ = path;
  file->identity_ = compressed->identity_;
  file->is_inflated_ = true;
  std::vector<uint8_t>& inflated = file->inflated_;
  const auto num_inflated = [&inflated] { return static_cast<int64_t>(inflated.size()); };
  GzipReader reader(*compressed);
  std::optional<int64_t> announced_bytes;
  bool is_done = false;
  while (!is_done) {
    RETURN_IF_ERROR(reader.Step(&inflated, &is_done));
    if (!announced_bytes.has_value() && (num_inflated() >= header_bytes || is_done)) {
      const int64_t num_start = std::min(header_bytes, num_inflated());
      ASSIGN_OR_RETURN(announced_bytes,
                       announce(absl::MakeConstSpan(inflated).subspan(0, num_start)));
      if (*announced_bytes > kMaxInflatedBytes) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": its header announces ", *announced_bytes,
                         " bytes, but Lodestar unpacks at most ", kMaxInflatedBytes,
                         " bytes into memory; unpack the file with gunzip"));
      }
    }
    if (announced_bytes.has_value() && num_inflated() > *announced_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": the file has more unpacked bytes than its header announces (",
                       *announced_bytes, "); download it or make it again"));
    }
  }
  inflated.shrink_to_fit();
  file->num_bytes_ = num_inflated();
  return file;
}

DataFile::~DataFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool DataFile::IsSameAs(const DataFile& other) const {
  return identity_.device == other.identity_.device && identity_.inode == other.identity_.inode;
}

absl::Status DataFile::Read(int64_t offset, absl::Span<uint8_t> out) const {
  if (out.empty()) return absl::OkStatus();
  if (is_inflated_) {
    std::memcpy(out.data(), inflated_.data() + offset, out.size());
    return absl::OkStatus();
  }
  if (descriptor_ >= 0) return ReadFrom(descriptor_, offset, out);
  ASSIGN_OR_RETURN(const OpenedFile opened, OpenRegularFile(path_));
  const absl::Status status = ReadFrom(opened.descriptor, offset, out);
  close(opened.descriptor);
  return status;
}

// Checks after each read that the file has not changed. A check before the read could miss a change
// during the read.
absl::Status DataFile::ReadFrom(int descriptor, int64_t offset, absl::Span<uint8_t> out) const {
  while (!out.empty()) {
    const ssize_t count = pread(descriptor, out.data(), out.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, "read", path_);
    if (count == 0) break;  // The file was cut short.
    out.remove_prefix(count);
    offset += count;
  }
  RETURN_IF_ERROR(CheckUnchanged(descriptor));
  if (out.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("data file ", path_, " has ", num_bytes_,
                   " bytes according to its file system, but reading ends at offset ", offset,
                   "; copy it to a disk of this machine"));
}

DataFile::Identity DataFile::IdentityOf(const struct stat& info) {
  return {info.st_dev, info.st_ino, static_cast<int64_t>(info.st_size), info.st_mtim.tv_sec,
          info.st_mtim.tv_nsec};
}

absl::Status DataFile::CheckUnchanged(int descriptor) const {
  struct stat info;
  if (fstat(descriptor, &info) != 0) return ErrnoStatus(errno, "examine", path_);
  const Identity now = IdentityOf(info);
  if (now == identity_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "data file ", path_, " changed while it was in use: it had ", identity_.num_bytes,
      " bytes, written ", TimeText(identity_.modified_seconds, identity_.modified_nanoseconds),
      ", and now has ", now.num_bytes, ", written ",
      TimeText(now.modified_seconds, now.modified_nanoseconds),
      ". The data of a job must not change. Put the old file back and start the worker again"));
}

absl::Status ScanDataFile(
    const DataFile& file, int64_t begin, StopRequested stop_requested,
    absl::FunctionRef<absl::Status(int64_t offset, absl::Span<const uint8_t> piece)> visit) {
  std::vector<uint8_t> buffer(std::min(kScanBytes, std::max<int64_t>(0, file.num_bytes() - begin)));
  for (int64_t at = begin; at < file.num_bytes(); at += kScanBytes) {
    const int64_t count = std::min(kScanBytes, file.num_bytes() - at);
    if (stop_requested(count)) {
      return absl::CancelledError(absl::StrCat("stopped on request while reading ", file.path()));
    }
    const absl::Span<uint8_t> piece = absl::MakeSpan(buffer).subspan(0, count);
    RETURN_IF_ERROR(file.Read(at, piece));
    RETURN_IF_ERROR(visit(at, piece));
  }
  return absl::OkStatus();
}

}  // namespace lodestar::data
