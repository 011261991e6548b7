// SPDX-License-Identifier: Apache-2.0

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"
#include "common/storage/safetensors.h"
#include "common/storage/safetensors_format.h"

namespace lodestar::storage {
namespace {

using safetensors_format::kLengthBytes;
using safetensors_format::kMaxHeaderBytes;
using safetensors_format::kMetadataKey;

// Data start at a multiple of this number of bytes, so that mapped tensors are aligned for vector
// instructions.
constexpr int64_t kDataAlignment = 64;

}  // namespace

absl::StatusOr<SafetensorsHeader> FormatSafetensorsHeader(
    const std::string& path, const std::vector<SafetensorsEntry>& entries,
    const SafetensorsMetadata& metadata) {
  SafetensorsHeader header;
  Json json = Json::object();
  if (!metadata.empty()) {
    Json pairs = Json::object();
    for (const auto& [key, value] : metadata) pairs.push_back({key, value});
    json.push_back({kMetadataKey, std::move(pairs)});
  }
  std::set<std::string> names = {kMetadataKey};
  for (const SafetensorsEntry& entry : entries) {
    const std::string where = absl::StrCat("cannot write ", path, ": tensor '", entry.name, "' ");
    if (!names.insert(entry.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, entry.name == kMetadataKey ? "has a reserved name" : "occurs twice"));
    }
    const auto size = safetensors_format::SizeOf(entry.dtype, entry.shape);
    if (!size.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(where, "is bad: ", size.status().message()));
    }
    const int64_t begin = header.data_bytes;
    if (__builtin_add_overflow(begin, size->num_bytes, &header.data_bytes)) {
      return absl::InvalidArgumentError(absl::StrCat(where, "makes the file too large"));
    }
    Json tensor = Json::object();
    tensor.push_back({"dtype", entry.dtype});
    tensor.push_back({"shape", entry.shape});
    tensor.push_back({"data_offsets", std::vector<int64_t>{begin, header.data_bytes}});
    json.push_back({entry.name, std::move(tensor)});
  }
  std::string text = FormatJson(json);
  const int64_t unpadded = kLengthBytes + static_cast<int64_t>(text.size());
  text.append((kDataAlignment - unpadded % kDataAlignment) % kDataAlignment, ' ');
  if (static_cast<int64_t>(text.size()) > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": its header has ",
                                                   text.size(), " bytes, allowed are ",
                                                   kMaxHeaderBytes));
  }
  for (int i = 0; i < kLengthBytes; ++i) {
    header.bytes.push_back(static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i)));
  }
  header.bytes += text;
  return header;
}

SafetensorsWriter::SafetensorsWriter(std::string path, SequentialFileWriter file,
                                     int64_t data_bytes)
    : path_(std::move(path)), file_(std::move(file)), data_bytes_(data_bytes) {}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    FileSystem& file_system, const std::string& path, const std::vector<SafetensorsEntry>& entries,
    const SafetensorsMetadata& metadata) {
  return Begin(&SequentialFileWriter::Create, file_system, path, entries, metadata);
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::CreateNew(
    FileSystem& file_system, const std::string& path, const std::vector<SafetensorsEntry>& entries,
    const SafetensorsMetadata& metadata) {
  return Begin(&SequentialFileWriter::CreateNew, file_system, path, entries, metadata);
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Begin(
    CreateFile* create, FileSystem& file_system, const std::string& path,
    const std::vector<SafetensorsEntry>& entries, const SafetensorsMetadata& metadata) {
  ASSIGN_OR_RETURN(const SafetensorsHeader header,
                   FormatSafetensorsHeader(path, entries, metadata));
  ASSIGN_OR_RETURN(SequentialFileWriter file, create(file_system, path));
  RETURN_IF_ERROR(file.Append(header.bytes));
  return std::unique_ptr<SafetensorsWriter>(
      new SafetensorsWriter(path, std::move(file), header.data_bytes));
}

absl::Status SafetensorsWriter::Append(absl::Span<const uint8_t> bytes) {
  if (static_cast<int64_t>(bytes.size()) > data_bytes_ - appended_bytes_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot write ", path_, ": its header announces ", data_bytes_, " bytes of tensors, but ",
        appended_bytes_, " bytes and then ", bytes.size(), " more were given"));
  }
  appended_bytes_ += static_cast<int64_t>(bytes.size());
  return file_.Append(bytes.data(), bytes.size());
}

absl::Status SafetensorsWriter::Append(absl::Span<const float> values) {
  return Append(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(values.data()),
                                    values.size() * sizeof(float)));
}

absl::StatusOr<WrittenFile> SafetensorsWriter::Finish(bool sync) {
  if (appended_bytes_ != data_bytes_) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot finish ", path_, ": its header announces ", data_bytes_,
                     " bytes of tensors, but only ", appended_bytes_, " were given"));
  }
  RETURN_IF_ERROR(file_.Finish(sync));
  return WrittenFile{file_.num_bytes(), file_.crc32c()};
}

}  // namespace lodestar::storage
