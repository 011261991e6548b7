// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/crc32c/crc32c.h"
#include "common/runtime/json.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_kind.h"
#include "common/storage/git_lfs_pointer.h"
#include "common/storage/safetensors.h"
#include "common/storage/safetensors_format.h"

namespace lodestar::storage {
namespace {

using safetensors_format::kLengthBytes;
using safetensors_format::kMaxHeaderBytes;
using safetensors_format::kMetadataKey;

absl::StatusOr<std::vector<int64_t>> AsInt64s(const Json& array, absl::string_view what) {
  std::vector<int64_t> numbers;
  for (const Json& item : array) {
    ASSIGN_OR_RETURN(const int64_t number, AsInt64(item, what));
    numbers.push_back(number);
  }
  return numbers;
}

// Returns a tensor from its header entry. The `offset` of the result counts from the start of the
// data, not of the file.
absl::StatusOr<SafetensorsTensor> ParseTensor(const std::string& name, const Json& entry) {
  SafetensorsTensor tensor;
  tensor.name = name;
  ASSIGN_OR_RETURN(tensor.dtype, GetString(entry, "dtype"));
  ASSIGN_OR_RETURN(const Json* const shape, GetArray(entry, "shape"));
  ASSIGN_OR_RETURN(tensor.shape, AsInt64s(*shape, "a dimension"));
  ASSIGN_OR_RETURN(const Json* const offset_array, GetArray(entry, "data_offsets"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, AsInt64s(*offset_array, "a data offset"));
  if (offsets.size() != 2 || offsets[0] < 0 || offsets[1] < offsets[0]) {
    return absl::InvalidArgumentError(absl::StrCat("data_offsets are [",
                                                   PeerText(absl::StrJoin(offsets, ",")),
                                                   "]; expected is 0 <= begin <= end"));
  }
  ASSIGN_OR_RETURN(const safetensors_format::TensorSize size,
                   safetensors_format::SizeOf(tensor.dtype, tensor.shape));
  tensor.num_elements = size.num_elements;
  tensor.offset = offsets[0];
  tensor.num_bytes = offsets[1] - offsets[0];
  if (tensor.num_bytes != size.num_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data_offsets are for ", tensor.num_bytes, " bytes, but ", tensor.dtype, " of shape [",
        PeerText(absl::StrJoin(tensor.shape, ",")), "] needs ", size.num_bytes));
  }
  return tensor;
}

absl::StatusOr<SafetensorsMetadata> ParseMetadata(const Json& entry) {
  if (!entry.is_object()) return absl::InvalidArgumentError("is not an object");
  SafetensorsMetadata metadata;
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat("'", PeerText(key), "' is not a string"));
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// Returns the length of the header. Requires: `file` has at least kLengthBytes.
uint64_t HeaderBytes(absl::string_view file) {
  uint64_t header_bytes = 0;
  for (int i = 0; i < kLengthBytes; ++i) {
    header_bytes |= uint64_t{static_cast<uint8_t>(file[i])} << (8 * i);
  }
  return header_bytes;
}

// Parses a header. `text` is its JSON.
absl::StatusOr<SafetensorsContents> ParseHeaderText(absl::string_view text) {
  if (text.empty() || text[0] != '{') {
    return absl::InvalidArgumentError(
        absl::StrCat("its header at offset ", kLengthBytes, " does not start with '{'"));
  }
  const auto json = ParseJson(text, {.max_bytes = kMaxHeaderBytes});
  if (!json.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("its header at offset ", kLengthBytes, ": ", json.status().message()));
  }
  SafetensorsContents contents;
  for (const auto& [name, entry] : json->items()) {
    if (name == kMetadataKey) {
      auto metadata = ParseMetadata(entry);
      if (!metadata.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat(kMetadataKey, ": ", metadata.status().message()));
      }
      contents.metadata = *std::move(metadata);
      continue;
    }
    auto tensor = ParseTensor(name, entry);
    if (!tensor.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", PeerText(name), "': ", tensor.status().message()));
    }
    contents.tensors.push_back(*std::move(tensor));
  }
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(text.size());
  contents.file_bytes = data_begin;
  for (SafetensorsTensor& tensor : contents.tensors) {
    int64_t end = 0;
    if (__builtin_add_overflow(tensor.offset, data_begin, &tensor.offset) ||
        __builtin_add_overflow(tensor.offset, tensor.num_bytes, &end)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor '", PeerText(tensor.name), "' ends beyond 2^63 bytes: the file is damaged"));
    }
    contents.file_bytes = std::max(contents.file_bytes, end);
  }
  std::sort(contents.tensors.begin(), contents.tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
              return std::pair(a.offset, a.num_bytes) < std::pair(b.offset, b.num_bytes);
            });
  return contents;
}

// Checks that the tensors fill a part of the file without gaps. The part begins at `data_begin` and
// has `data_bytes` bytes.
absl::Status CheckTiling(const std::vector<SafetensorsTensor>& tensors, int64_t data_begin,
                         int64_t data_bytes) {
  int64_t expected = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    const int64_t offset = tensor.offset - data_begin;
    if (offset != expected) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor '", PeerText(tensor.name), "' begins at data offset ", offset, ", expected ",
          expected, ": there is ", offset < expected ? "an overlap" : "a gap"));
    }
    if (tensor.num_bytes > data_bytes - offset) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor '", PeerText(tensor.name), "' ends at data offset ", offset + tensor.num_bytes,
          ", but the file holds only ", data_bytes, " bytes of data: it is cut short"));
    }
    expected = offset + tensor.num_bytes;
  }
  if (expected != data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("its tensors end at data offset ", expected,
                                                   ", but the file holds ", data_bytes,
                                                   " bytes of data"));
  }
  return absl::OkStatus();
}

// Returns text that says which other format the file has, and what to do. Returns nullopt if the
// first bytes of the file do not show its format.
std::optional<std::string> WhatElse(absl::Span<const uint8_t> file) {
  constexpr size_t kStartBytes = 512;
  const absl::Span<const uint8_t> start = file.subspan(0, kStartBytes);
  const absl::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  // torch.save() writes a ZIP archive. Older versions wrote pickled objects.
  if (absl::StartsWith(text, "PK\x03\x04") || absl::StartsWith(text, "\x80\x02")) {
    return "it looks like a file of torch.save(), such as pytorch_model.bin. Convert it in Python "
           "with safetensors.torch.save_file(state_dict, 'model.safetensors'), or give a folder "
           "that save_pretrained(safe_serialization=True) wrote";
  }
  const std::string kind = KindInWords(start);
  if (!KindByMagic(start).empty() || kind == "an HTML page") {
    return absl::StrCat("it is ", kind, "; download it or make it again");
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::optional<SafetensorsContents>> ReadSafetensorsHeader(absl::string_view start) {
  if (start.size() < kLengthBytes) return std::nullopt;
  const uint64_t header_bytes = HeaderBytes(start);
  if (header_bytes > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its header length at offset 0 is ", header_bytes, ", expected at most ", kMaxHeaderBytes));
  }
  if (start.size() - kLengthBytes < header_bytes) return std::nullopt;
  ASSIGN_OR_RETURN(SafetensorsContents contents,
                   ParseHeaderText(start.substr(kLengthBytes, header_bytes)));
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(header_bytes);
  RETURN_IF_ERROR(CheckTiling(contents.tensors, data_begin, contents.file_bytes - data_begin));
  return contents;
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    FileSystem& file_system, const std::string& path) {
  ASSIGN_OR_RETURN(FileBytes file, file_system.Map(path));
  RETURN_IF_ERROR(CheckNotGitLfsPointer(path, file.bytes));
  std::unique_ptr<SafetensorsReader> reader(new SafetensorsReader(std::move(file)));
  if (absl::Status status = reader->ParseHeader(); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a complete safetensors file: ",
                     WhatElse(reader->file_.bytes).value_or(std::string(status.message()))));
  }
  reader->CopyUnaligned();
  return reader;
}

absl::Status SafetensorsReader::ParseHeader() {
  const absl::string_view bytes(reinterpret_cast<const char*>(file_.bytes.data()),
                                file_.bytes.size());
  if (file_bytes() < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", bytes.size(), " bytes, expected at least ", kLengthBytes));
  }
  const uint64_t header_bytes = HeaderBytes(bytes);
  const uint64_t limit = std::min<uint64_t>(kMaxHeaderBytes, file_bytes() - kLengthBytes);
  if (header_bytes > limit) {
    return absl::InvalidArgumentError(absl::StrCat("its header length at offset 0 is ",
                                                   header_bytes, ", expected at most ", limit,
                                                   " in a file of ", bytes.size(), " bytes"));
  }
  ASSIGN_OR_RETURN(SafetensorsContents contents,
                   ParseHeaderText(bytes.substr(kLengthBytes, header_bytes)));
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(header_bytes);
  RETURN_IF_ERROR(CheckTiling(contents.tensors, data_begin, file_bytes() - data_begin));
  tensors_ = std::move(contents.tensors);
  metadata_ = std::move(contents.metadata);
  for (size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].name] = i;
  return absl::OkStatus();
}

void SafetensorsReader::CopyUnaligned() {
  for (const SafetensorsTensor& tensor : tensors_) {
    if (tensor.dtype != "F32" || tensor.offset % alignof(float) == 0) continue;
    std::vector<float>& copy = copies_[tensor.name];
    copy.resize(tensor.num_elements);
    std::memcpy(copy.data(), file_.bytes.data() + tensor.offset, tensor.num_bytes);
  }
}

const SafetensorsTensor* SafetensorsReader::Find(const std::string& name) const {
  const auto entry = index_.find(name);
  return entry == index_.end() ? nullptr : &tensors_[entry->second];
}

absl::Span<const uint8_t> SafetensorsReader::Bytes(const SafetensorsTensor& tensor) const {
  return file_.bytes.subspan(tensor.offset, tensor.num_bytes);
}

absl::StatusOr<absl::Span<const float>> SafetensorsReader::Floats(const std::string& name) const {
  const SafetensorsTensor* const tensor = Find(name);
  if (tensor == nullptr) {
    return absl::NotFoundError(absl::StrCat(path(), " has no tensor '", name,
                                            "'; the number of its tensors is ", tensors_.size()));
  }
  if (tensor->dtype != "F32") {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor '", name, "' in ", path(), " is of dtype ", tensor->dtype, ", expected F32"));
  }
  const auto copy = copies_.find(name);
  if (copy != copies_.end()) return absl::MakeConstSpan(copy->second);
  return absl::MakeConstSpan(reinterpret_cast<const float*>(Bytes(*tensor).data()),
                             tensor->num_elements);
}

uint32_t SafetensorsReader::ComputeCrc32c() const { return crc32c::Crc32c(file_.bytes); }

}  // namespace lodestar::storage
