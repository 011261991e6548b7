#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/crc32c.h"
#include "common/git_lfs_pointer.h"
#include "common/json.h"
#include "common/safetensors.h"
#include "common/safetensors_format.h"
#include "common/status_macros.h"

namespace lodestar {
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

// A tensor from its header entry; `offset` is still counted from the start of the data.
absl::StatusOr<SafetensorsTensor> ParseTensor(const std::string& name, const Json& entry) {
  SafetensorsTensor tensor;
  tensor.name = name;
  ASSIGN_OR_RETURN(tensor.dtype, GetString(entry, "dtype"));
  ASSIGN_OR_RETURN(const Json* const shape, GetArray(entry, "shape"));
  ASSIGN_OR_RETURN(tensor.shape, AsInt64s(*shape, "a dimension"));
  ASSIGN_OR_RETURN(const Json* const offset_array, GetArray(entry, "data_offsets"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, AsInt64s(*offset_array, "a data offset"));
  if (offsets.size() != 2 || offsets[0] < 0 || offsets[1] < offsets[0]) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data_offsets are [", absl::StrJoin(offsets, ","), "], expected 0 <= begin <= end"));
  }
  ASSIGN_OR_RETURN(const safetensors_format::TensorSize size,
                   safetensors_format::SizeOf(tensor.dtype, tensor.shape));
  tensor.num_elements = size.num_elements;
  tensor.offset = offsets[0];
  tensor.num_bytes = offsets[1] - offsets[0];
  if (tensor.num_bytes != size.num_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("data_offsets hold ", tensor.num_bytes, " bytes, ", tensor.dtype,
                     " of shape [", absl::StrJoin(tensor.shape, ","), "] needs ", size.num_bytes));
  }
  return tensor;
}

absl::StatusOr<SafetensorsMetadata> ParseMetadata(const Json& entry) {
  if (!entry.is_object()) return absl::InvalidArgumentError("is not an object");
  SafetensorsMetadata metadata;
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat("'", key, "' is not a string"));
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    FileSystem& file_system, const std::string& path) {
  ASSIGN_OR_RETURN(FileBytes file, file_system.Map(path));
  RETURN_IF_ERROR(CheckNotGitLfsPointer(path, file.bytes));
  std::unique_ptr<SafetensorsReader> reader(new SafetensorsReader(std::move(file)));
  if (absl::Status status = reader->ParseHeader(); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a whole safetensors file: ", status.message()));
  }
  reader->CopyUnaligned();
  return reader;
}

absl::Status SafetensorsReader::ParseHeader() {
  const absl::Span<const uint8_t> bytes = file_.bytes;
  if (file_bytes() < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", bytes.size(), " bytes, expected at least ", kLengthBytes));
  }
  uint64_t header_bytes = 0;
  for (int i = 0; i < kLengthBytes; ++i) header_bytes |= uint64_t{bytes[i]} << (8 * i);
  const uint64_t limit = std::min<uint64_t>(kMaxHeaderBytes, file_bytes() - kLengthBytes);
  if (header_bytes > limit) {
    return absl::InvalidArgumentError(absl::StrCat("its header length at offset 0 is ",
                                                   header_bytes, ", expected at most ", limit,
                                                   " in a file of ", bytes.size(), " bytes"));
  }
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                               header_bytes);
  if (text.empty() || text[0] != '{') {
    return absl::InvalidArgumentError(
        absl::StrCat("its header at offset ", kLengthBytes, " does not start with '{'"));
  }
  const auto json = ParseJson(text, {.max_bytes = kMaxHeaderBytes});
  if (!json.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("its header at offset ", kLengthBytes, ": ", json.status().message()));
  }
  for (const auto& [name, entry] : json->items()) {
    if (name == kMetadataKey) {
      auto metadata = ParseMetadata(entry);
      if (!metadata.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat(kMetadataKey, ": ", metadata.status().message()));
      }
      metadata_ = *std::move(metadata);
      continue;
    }
    auto tensor = ParseTensor(name, entry);
    if (!tensor.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", name, "': ", tensor.status().message()));
    }
    tensors_.push_back(*std::move(tensor));
  }
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(header_bytes);
  std::sort(tensors_.begin(), tensors_.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
              return std::pair(a.offset, a.num_bytes) < std::pair(b.offset, b.num_bytes);
            });
  RETURN_IF_ERROR(CheckTiling(data_begin));
  for (size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].offset += data_begin;
    index_[tensors_[i].name] = i;
  }
  return absl::OkStatus();
}

absl::Status SafetensorsReader::CheckTiling(int64_t data_begin) const {
  int64_t expected = 0;
  const int64_t data_bytes = file_bytes() - data_begin;
  for (const SafetensorsTensor& tensor : tensors_) {
    if (tensor.offset != expected) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor '", tensor.name, "' begins at data offset ", tensor.offset, ", expected ",
          expected, ": there is ", tensor.offset < expected ? "an overlap" : "a hole"));
    }
    if (tensor.num_bytes > data_bytes - tensor.offset) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor '", tensor.name, "' ends at data offset ",
          static_cast<uint64_t>(tensor.offset) + tensor.num_bytes, ", but the file holds only ",
          data_bytes, " bytes of data: it is cut short"));
    }
    expected = tensor.offset + tensor.num_bytes;
  }
  if (expected != data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("its tensors end at data offset ", expected,
                                                   ", but the file holds ", data_bytes,
                                                   " bytes of data"));
  }
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
    return absl::NotFoundError(
        absl::StrCat(path(), " has no tensor '", name, "'; it has ", tensors_.size(), " others"));
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

uint32_t SafetensorsReader::ComputeCrc32c() const { return Crc32c(file_.bytes); }

}  // namespace lodestar
