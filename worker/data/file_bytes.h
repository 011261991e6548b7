// The bytes of one data file: mapped, or inflated into memory if the file is compressed. Read-only;
// movable, and the bytes stay where they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/file_io.h"

namespace lodestar {

class FileBytes {
 public:
  // Largest inflated size; a compressed file may claim any.
  static constexpr int64_t kMaxInflatedBytes = int64_t{4} << 30;

  // Errors: NotFound, PermissionDenied, ResourceExhausted (too many maps), naming the file.
  static absl::StatusOr<FileBytes> Map(const std::string& path);
  // Reads gzip. Errors: those of Map(); InvalidArgument for damage, with the offset in the
  // compressed file, and for more than `max_inflated_bytes`.
  static absl::StatusOr<FileBytes> Inflate(const std::string& path,
                                           int64_t max_inflated_bytes = kMaxInflatedBytes);

  const std::string& path() const { return path_; }
  absl::Span<const uint8_t> bytes() const { return bytes_; }

 private:
  FileBytes() = default;

  std::string path_;
  MappedFile mapped_;
  std::vector<uint8_t> inflated_;
  absl::Span<const uint8_t> bytes_;  // into mapped_ or inflated_
};

}  // namespace lodestar
