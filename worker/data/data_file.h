// The bytes of one data file: read from the disk piece by piece, or inflated into memory if the
// file is compressed. Reading instead of mapping makes a file that is cut short, and a disk that
// fails, errors of the read instead of signals; a read costs about a microsecond more.
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

// Thread-safe.
class DataFile {
 public:
  // Largest inflated size; a compressed file may claim any.
  static constexpr int64_t kMaxInflatedBytes = int64_t{4} << 30;
  // A process may have only so many descriptors: files beyond the first few hundred of a corpus are
  // opened for each read.
  static constexpr size_t kMaxKeptDescriptors = 512;
  enum class Descriptor : uint8_t { kKept, kPerRead };

  // Errors: NotFound, PermissionDenied, InvalidArgument (not a regular file), FailedPrecondition (a
  // pointer of Git LFS), naming the file.
  static absl::StatusOr<std::shared_ptr<const DataFile>> Open(
      const std::string& path, Descriptor descriptor = Descriptor::kKept);
  // Returns the size of the file that its first bytes announce. If the file is shorter than
  // `header_bytes`, so is `start`.
  using Announcement = absl::FunctionRef<absl::StatusOr<int64_t>(absl::Span<const uint8_t> start)>;
  // Reads gzip: the first `header_bytes`, and then as much as `announce` says. Errors: those of
  // Open(), Read() and `announce`; InvalidArgument for what is no gzip data, naming what it is, for
  // damage, with the offset in the compressed file, and for more than is announced or than
  // kMaxInflatedBytes.
  static absl::StatusOr<std::shared_ptr<const DataFile>> Inflate(const std::string& path,
                                                                 int64_t header_bytes,
                                                                 Announcement announce);

  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;
  ~DataFile();

  const std::string& path() const { return path_; }
  int64_t num_bytes() const { return num_bytes_; }
  // Whether both are one file under two names.
  bool IsSameAs(const DataFile& other) const;

  // Fills `out` with the bytes from `offset` on. Requires: they are within num_bytes().
  // Errors: FailedPrecondition, telling sizes and times, if the file is not as it was when it was
  // opened (cut short, written to or, unless the descriptor is kept, replaced), or if it ends
  // before its size says; those of the disk.
  absl::Status Read(int64_t offset, absl::Span<uint8_t> out) const;

 private:
  // What tells that a file is still the same, and as it was.
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

// Asked before each piece of long work, of so many bytes; from any thread.
using StopRequested = absl::FunctionRef<bool(int64_t num_bytes)>;
inline bool NeverStopped(int64_t /*num_bytes*/) { return false; }

// Reads the file from `begin` to its end, in pieces of 2^18 bytes (the last one may be shorter),
// and calls `visit` with each. Errors: those of Read(); the first one of `visit`; Cancelled as soon
// as a stop is requested.
absl::Status ScanDataFile(
    const DataFile& file, int64_t begin, StopRequested stop_requested,
    absl::FunctionRef<absl::Status(int64_t offset, absl::Span<const uint8_t> piece)> visit);

}  // namespace lodestar::data
