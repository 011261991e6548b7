// Files of the safetensors format: uint64 length N | N bytes of JSON | data. The JSON maps a name
// to
// {"dtype", "shape", "data_offsets": [begin, end)}, offsets counted from the start of the data;
// "__metadata__" maps strings to strings. Tensors are row-major, little-endian, and tile the data.
// Source: README.md and tensor.rs of github.com/huggingface/safetensors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/storage/file_system.h"

namespace lodestar {

using SafetensorsMetadata = std::map<std::string, std::string>;

// What to write of one tensor.
struct SafetensorsEntry {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "F32";
};

struct SafetensorsHeader {
  std::string bytes;       // all that comes before the data, which start at a multiple of 64
  int64_t data_bytes = 0;  // that must follow
};

// For those who send a file instead of writing one. Errors: InvalidArgument for unknown dtypes, bad
// shapes, repeated or reserved names; `path` names the file in them.
absl::StatusOr<SafetensorsHeader> FormatSafetensorsHeader(
    const std::string& path, const std::vector<SafetensorsEntry>& entries,
    const SafetensorsMetadata& metadata);

struct WrittenFile {
  int64_t num_bytes = 0;
  uint32_t crc32c = 0;  // of the whole file
};

// Writes a file whose data start at a multiple of 64 bytes. Not thread-safe.
// Usage: Create() or CreateNew(); Append() the bytes of all tensors, in the order of the entries
// and cut in any way; Finish().
class SafetensorsWriter {
 public:
  // Errors: those of files; InvalidArgument for unknown dtypes, bad shapes, repeated or reserved
  // names.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      FileSystem& file_system, const std::string& path,
      const std::vector<SafetensorsEntry>& entries, const SafetensorsMetadata& metadata);
  // Errors also: AlreadyExists, for links that lead nowhere, too.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> CreateNew(
      FileSystem& file_system, const std::string& path,
      const std::vector<SafetensorsEntry>& entries, const SafetensorsMetadata& metadata);

  absl::Status Append(absl::Span<const uint8_t> bytes);
  absl::Status Append(absl::Span<const float> values);
  // Errors also: FailedPrecondition if fewer bytes came than the entries need.
  absl::StatusOr<WrittenFile> Finish(bool sync);

 private:
  using CreateFile = absl::StatusOr<SequentialFileWriter>(FileSystem& file_system,
                                                          const std::string& path);
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Begin(
      CreateFile* create, FileSystem& file_system, const std::string& path,
      const std::vector<SafetensorsEntry>& entries, const SafetensorsMetadata& metadata);
  SafetensorsWriter(std::string path, SequentialFileWriter file, int64_t data_bytes);

  const std::string path_;
  SequentialFileWriter file_;
  const int64_t data_bytes_;
  int64_t appended_bytes_ = 0;
};

struct SafetensorsTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t num_elements = 0;
  int64_t offset = 0;  // in bytes from the start of the file
  int64_t num_bytes = 0;
};

// What the header of a file says.
struct SafetensorsContents {
  std::vector<SafetensorsTensor> tensors;  // in order of their data
  SafetensorsMetadata metadata;
  int64_t file_bytes = 0;  // of the whole file
};

// Reads the header of a file that is still on its way; `start` are the bytes that have come.
// Returns nullopt if the header goes on behind `start`. Errors: InvalidArgument naming tensor,
// offset and what was expected for anything that breaks the format.
absl::StatusOr<std::optional<SafetensorsContents>> ReadSafetensorsHeader(absl::string_view start);

// A mapped file, all of whose header has been checked. Thread-safe.
class SafetensorsReader {
 public:
  // Errors: those of FileSystem::Map(); InvalidArgument naming file, tensor, offset and what was
  // expected for anything that breaks the format.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(FileSystem& file_system,
                                                                 const std::string& path);

  // In order of their data.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  // Null if there is none of that name.
  const SafetensorsTensor* Find(const std::string& name) const;

  absl::Span<const uint8_t> Bytes(const SafetensorsTensor& tensor) const;
  // The values of an F32 tensor; of the mapped file itself where its data is aligned, else of a
  // copy made by Open(). Valid as long as this object. Errors: NotFound, InvalidArgument for
  // another dtype.
  absl::StatusOr<absl::Span<const float>> Floats(const std::string& name) const;

  int64_t file_bytes() const { return static_cast<int64_t>(file_.bytes.size()); }
  const std::string& path() const { return file_.path; }
  // Reads the whole file.
  uint32_t ComputeCrc32c() const;

 private:
  explicit SafetensorsReader(FileBytes file) : file_(std::move(file)) {}
  absl::Status ParseHeader();
  void CopyUnaligned();

  const FileBytes file_;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::vector<float>> copies_;
  SafetensorsMetadata metadata_;
};

}  // namespace lodestar
