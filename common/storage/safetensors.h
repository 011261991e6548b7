// SPDX-License-Identifier: Apache-2.0

// Files of the safetensors format: uint64 length N | N bytes of JSON | data. The JSON maps a
// tensor's name to {"dtype", "shape", "data_offsets": [begin, end)}, with offsets from the start of
// the data. "__metadata__" maps strings to strings. Tensors are row-major and little-endian, and
// fill the data without gaps. Source: README.md and tensor.rs of
// github.com/huggingface/safetensors.
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

namespace lodestar::storage {

using SafetensorsMetadata = std::map<std::string, std::string>;

// Description of a tensor to write.
struct SafetensorsEntry {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "F32";
};

struct SafetensorsHeader {
  std::string bytes;       // all bytes before the data, which start at a multiple of 64
  int64_t data_bytes = 0;  // number of data bytes that must follow
};

// Returns the bytes that come before the data in a file. This is for code that sends a file over
// the network. Errors: InvalidArgument (unknown dtype, bad shape, repeated or reserved name).
// `path` names the file in errors.
absl::StatusOr<SafetensorsHeader> FormatSafetensorsHeader(
    const std::string& path, const std::vector<SafetensorsEntry>& entries,
    const SafetensorsMetadata& metadata);

struct WrittenFile {
  int64_t num_bytes = 0;
  uint32_t crc32c = 0;  // checksum of the whole file
};

// Writes a file whose data start at a multiple of 64 bytes. Not thread-safe. Usage: Create() or
// CreateNew(); Append() the bytes of all tensors, in the order of the entries and in pieces of any
// size; Finish().
class SafetensorsWriter {
 public:
  // Creates or truncates the file. Errors: those of files; InvalidArgument (unknown dtype, bad
  // shape, repeated or reserved name).
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      FileSystem& file_system, const std::string& path,
      const std::vector<SafetensorsEntry>& entries, const SafetensorsMetadata& metadata);
  // Creates the file. Errors also: AlreadyExists (anything has this path, even a link that leads
  // nowhere).
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> CreateNew(
      FileSystem& file_system, const std::string& path,
      const std::vector<SafetensorsEntry>& entries, const SafetensorsMetadata& metadata);

  absl::Status Append(absl::Span<const uint8_t> bytes);
  absl::Status Append(absl::Span<const float> values);
  // Completes the file. Errors also: FailedPrecondition if fewer bytes came than the entries need.
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
  int64_t offset = 0;  // bytes from the start of the file
  int64_t num_bytes = 0;
};

// The content of a file according to its header.
struct SafetensorsContents {
  std::vector<SafetensorsTensor> tensors;  // in the order of their data
  SafetensorsMetadata metadata;
  int64_t file_bytes = 0;  // size of the whole file
};

// Reads the header of a file that is still arriving. `start` has the bytes received so far. Returns
// nullopt if the header is not complete yet. Errors: InvalidArgument naming the tensor, the offset
// and what was expected, if the format is broken.
absl::StatusOr<std::optional<SafetensorsContents>> ReadSafetensorsHeader(absl::string_view start);

// A mapped file whose whole header has been checked. Thread-safe.
class SafetensorsReader {
 public:
  // Maps the file and checks its header. Errors: those of FileSystem::Map(); InvalidArgument naming
  // the file, the tensor, the offset and what was expected, if the format is broken.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(FileSystem& file_system,
                                                                 const std::string& path);

  // Returns the tensors in the order of their data.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  // Returns the tensor with this name, or null.
  const SafetensorsTensor* Find(const std::string& name) const;

  absl::Span<const uint8_t> Bytes(const SafetensorsTensor& tensor) const;
  // Returns the values of an F32 tensor. The values are in the mapped file if its data is aligned,
  // and otherwise in a copy that Open() has made. They are valid as long as this object. Errors:
  // NotFound; InvalidArgument (another dtype).
  absl::StatusOr<absl::Span<const float>> Floats(const std::string& name) const;

  int64_t file_bytes() const { return static_cast<int64_t>(file_.bytes.size()); }
  const std::string& path() const { return file_.path; }
  // Returns the checksum of the whole file. Reads all of it.
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

}  // namespace lodestar::storage
