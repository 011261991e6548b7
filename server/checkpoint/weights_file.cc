#include "server/checkpoint/weights_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/file_io.h"
#include "common/model_spec_json.h"
#include "common/status_macros.h"
#include "server/checkpoint/checkpoint_reader.h"

namespace lodestar {
namespace {

// 16 MiB at a time.
constexpr int64_t kPieceElements = 4 << 20;

absl::Status CopyWeights(const CheckpointReader& checkpoint, const std::string& path) {
  const Manifest& manifest = checkpoint.manifest();
  std::vector<SafetensorsEntry> entries;
  for (const TensorSpec& tensor : manifest.layout.tensors()) {
    entries.push_back({tensor.name, tensor.shape});
  }
  SafetensorsMetadata metadata = {{"format", "pt"}};
  if (!manifest.model.empty()) metadata[kModelMetadataKey] = manifest.model;
  ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsWriter> writer,
                   SafetensorsWriter::Create(path, entries, metadata));
  const int64_t num_elements = manifest.layout.num_elements();
  std::vector<float> piece(std::min(kPieceElements, num_elements));
  for (int64_t begin = 0; begin < num_elements; begin += kPieceElements) {
    const int64_t end = std::min(begin + kPieceElements, num_elements);
    const absl::Span<float> values(piece.data(), end - begin);
    RETURN_IF_ERROR(checkpoint.ReadWeights({begin, end}, values));
    RETURN_IF_ERROR(writer->Append(absl::Span<const float>(values)));
  }
  return writer->Finish(/*sync=*/true).status();
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::Status CheckTensors(const SafetensorsReader& file, const Layout& layout) {
  for (const TensorSpec& wanted : layout.tensors()) {
    const SafetensorsTensor* const seen = file.Find(wanted.name);
    if (seen == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path(), " has no tensor ", wanted.name, ", which the model needs"));
    }
    if (seen->dtype != "F32" || seen->shape != wanted.shape) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path(), ": tensor ", wanted.name, " is ", seen->dtype, " ",
                       ShapeText(seen->shape), ", the model needs F32 ", ShapeText(wanted.shape)));
    }
  }
  for (const SafetensorsTensor& seen : file.tensors()) {
    if (layout.Find(seen.name) == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path(), " has tensor ", seen.name, ", which the model does not know"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ExportWeights(const std::string& checkpoint_directory, const std::string& out_path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> checkpoint,
                   CheckpointReader::Open(checkpoint_directory));
  const std::string temporary_path = absl::StrCat(out_path, ".tmp-", getpid());
  absl::Status status = CopyWeights(*checkpoint, temporary_path);
  if (status.ok() && std::rename(temporary_path.c_str(), out_path.c_str()) != 0) {
    status = ErrnoStatus(errno, "rename a temporary file to", out_path);
  }
  if (!status.ok()) {
    unlink(temporary_path.c_str());
    return status;
  }
  const std::string parent = std::filesystem::path(out_path).parent_path().string();
  return FsyncDirectory(parent.empty() ? "." : parent);
}

WeightsFile::WeightsFile(std::unique_ptr<SafetensorsReader> file, Layout layout)
    : file_(std::move(file)), layout_(std::move(layout)) {}

absl::StatusOr<std::unique_ptr<WeightsFile>> WeightsFile::Open(const std::string& path,
                                                               const Layout& layout) {
  ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsReader> file, SafetensorsReader::Open(path));
  RETURN_IF_ERROR(CheckTensors(*file, layout));
  return std::unique_ptr<WeightsFile>(new WeightsFile(std::move(file), layout));
}

absl::Status WeightsFile::Read(ElementRange range, absl::Span<float> weights) const {
  for (const TensorSpec& tensor : layout_.tensors()) {
    const int64_t begin = std::max(tensor.offset, range.begin);
    const int64_t end = std::min(tensor.offset + tensor.num_elements(), range.end);
    if (begin >= end) continue;
    ASSIGN_OR_RETURN(const absl::Span<const float> values, file_->Floats(tensor.name));
    std::memcpy(weights.data() + (begin - range.begin), values.data() + (begin - tensor.offset),
                (end - begin) * sizeof(float));
  }
  return absl::OkStatus();
}

}  // namespace lodestar
