// SPDX-License-Identifier: Apache-2.0

// DataFile is the bytes of one data file. They are read from the disk piece by piece, or inflated
// into memory if the file is compressed. Files are not mapped into memory: if a file is cut short
// or a disk fails, a mapped read ends the process with a signal.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

struct stat;

namespace lodestar::data {

// An open file. Thread-safe.
class DataFile {
 public:
  // Maximum size after inflation. A compressed file may claim to have any size.
  static constexpr int64_t kMaxInflatedBytes = int64_t{4} << 30;
  // Maximum number of files of a corpus that are kept open, because a process may have only so many
  // descriptors. Further files are opened for each read.
  static constexpr size_t kMaxKeptDescriptors = 512;
  enum class Descriptor : uint8_t { kKept, kPerRead };

  // Opens a file. Errors: NotFound, PermissionDenied, InvalidArgument (not a regular file),
  // FailedPrecondition (a pointer of Git LFS). All name the file.
  static absl::StatusOr<std::shared_ptr<const DataFile>> Open(
      const std::string& path, Descriptor descriptor = Descriptor::kKept);
  // A callback that returns the size of the inflated file. `start` has the first `header_bytes` of
  // the file, or all of it if it is shorter.
  using Announcement = absl::FunctionRef<absl::StatusOr<int64_t>(absl::Span<const uint8_t> start)>;
  // Opens a gzip file and inflates it into memory. Calls `announce` once the header is inflated.
  // Errors:
  // - those of Open(), Read() and `announce`;
  // - InvalidArgument naming the problem, if the file is not gzip data, is damaged, or inflates to
  //   more bytes than announced or than kMaxInflatedBytes.
  static absl::StatusOr<std::shared_ptr<const DataFile>> Inflate(const std::string& path,
                                                                 int64_t header_bytes,
                                                                 Announcement announce);

  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;
  ~DataFile();

  const std::string& path() const { return path_; }
  int64_t num_bytes() const { return num_bytes_; }
  // Returns true if both objects are the same file on disk, maybe under two names.
  bool IsSameAs(const DataFile& other) const;

  // Fills `out` with the bytes from `offset` on. Requires: they are within num_bytes(). Errors:
  // - FailedPrecondition if the size or the time of the last change is not that of Open();
  // - FailedPrecondition if the file was replaced, unless the descriptor is kept;
  // - FailedPrecondition if the file ends before num_bytes();
  // - those of the disk.
  absl::Status Read(int64_t offset, absl::Span<uint8_t> out) const;

 private:
  // The facts that show whether a file is the same one and has not changed.
  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;
    int64_t num_bytes = 0;
    int64_t modified_seconds = 0;
    int64_t modified_nanoseconds = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };

  DataFile() = default;
  static Identity IdentityOf(const struct stat& info);
  absl::Status ReadFrom(int descriptor, int64_t offset, absl::Span<uint8_t> out) const;
  absl::Status CheckUnchanged(int descriptor) const;

  std::string path_;
  int64_t num_bytes_ = 0;
  int descriptor_ = -1;
  Identity identity_;
  std::vector<uint8_t> inflated_;
  bool is_inflated_ = false;
};

// Called before each piece of long work with the size of the piece in bytes. Returns true to stop
// the work. May be called from any thread.
using StopRequested = absl::FunctionRef<bool(int64_t num_bytes)>;
inline bool NeverStopped(int64_t /*num_bytes*/) { return false; }

// Reads the file from `begin` to its end, in pieces of 2^18 bytes (the last one may be shorter),
// and calls `visit` with each piece. Errors: those of Read(); the first error of `visit`; Cancelled
// once a stop is requested.
absl::Status ScanDataFile(
    const DataFile& file, int64_t begin, StopRequested stop_requested,
    absl::FunctionRef<absl::Status(int64_t offset, absl::Span<const uint8_t> piece)> visit);

}  // namespace lodestar::data
