#include "common/trained_weights.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint_manifest.h"
#include "common/model_spec_json.h"
#include "common/status_macros.h"
#include "common/tensor_slices.h"

namespace lodestar {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// A folder without a manifest: most likely the one that has the checkpoints in it.
absl::Status NoCheckpoint(FileSystem& file_system, const std::string& path) {
  std::vector<std::string> checkpoints;
  for (const std::string& name : file_system.List(path).value_or(std::vector<std::string>())) {
    std::string candidate = (std::filesystem::path(path) / name).string();
    if (file_system.Exists(absl::StrCat(candidate, "/", kManifestName))) {
      checkpoints.push_back(std::move(candidate));
    }
  }
  std::sort(checkpoints.begin(), checkpoints.end());
  return absl::NotFoundError(absl::StrCat(
      path, " is a folder without ", kManifestName, ", so no checkpoint; ",
      checkpoints.empty()
          ? "give a checkpoint or a safetensors file"
          : absl::StrCat("give one of those in it: ", absl::StrJoin(checkpoints, ", "))));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainedWeights>> TrainedWeights::Open(FileSystem& file_system,
                                                                     const std::string& path) {
  std::unique_ptr<TrainedWeights> weights(new TrainedWeights(path));
  RETURN_IF_ERROR(file_system.IsDirectory(path) ? weights->OpenCheckpoint(file_system)
                                                : weights->OpenFile(file_system));
  return weights;
}

absl::Status TrainedWeights::OpenFile(FileSystem& file_system) {
  ASSIGN_OR_RETURN(files_.emplace_back(), SafetensorsReader::Open(file_system, path_));
  const SafetensorsReader& file = *files_.back();
  const auto model = file.metadata().find(kModelMetadataKey);
  if (model != file.metadata().end()) model_ = model->second;
  for (const SafetensorsTensor& tensor : file.tensors()) {
    Tensor& added = tensors_[tensor.name];
    added.dtype = tensor.dtype;
    added.shape = tensor.shape;
    if (const auto values = file.Floats(tensor.name); values.ok()) added.values = *values;
  }
  return absl::OkStatus();
}

absl::Status TrainedWeights::OpenCheckpoint(FileSystem& file_system) {
  const absl::StatusOr<Manifest> manifest = ReadManifest(file_system, path_);
  if (absl::IsNotFound(manifest.status())) return NoCheckpoint(file_system, path_);
  RETURN_IF_ERROR(manifest.status());
  model_ = manifest->model;
  for (const TensorSpec& tensor : manifest->layout.tensors()) {
    tensors_[tensor.name] = {"F32", tensor.shape, {}};
  }
  for (const ShardManifest& shard : manifest->shards) {
    RETURN_IF_ERROR(VerifyCheckpointFile(file_system, path_, shard.weights));
    ASSIGN_OR_RETURN(
        files_.emplace_back(),
        SafetensorsReader::Open(file_system, absl::StrCat(path_, "/", shard.weights.name)));
    RETURN_IF_ERROR(AddPart(manifest->layout, shard.range, *files_.back()));
  }
  return absl::OkStatus();
}

absl::Status TrainedWeights::AddPart(const Layout& layout, ElementRange range,
                                     const SafetensorsReader& file) {
  for (const TensorSlice& slice : SlicesOf(layout, range, /*state_name=*/"")) {
    ASSIGN_OR_RETURN(const absl::Span<const float> values, file.Floats(slice.name));
    if (static_cast<int64_t>(values.size()) != slice.range.size()) {
      return absl::DataLossError(absl::StrCat(file.path(), ": ", slice.name, " has ", values.size(),
                                              " elements, the layout says ", slice.range.size()));
    }
    const TensorSpec& tensor = *layout.Find(slice.tensor);
    if (slice.range.size() == tensor.num_elements()) {
      tensors_[tensor.name].values = values;
      continue;
    }
    std::vector<float>& joined = joined_[tensor.name];
    joined.resize(tensor.num_elements());
    std::copy(values.begin(), values.end(), joined.begin() + (slice.range.begin - tensor.offset));
    tensors_[tensor.name].values = joined;
  }
  return absl::OkStatus();
}

absl::Status TrainedWeights::CheckTensors(const Layout& layout) const {
  for (const TensorSpec& wanted : layout.tensors()) {
    const auto seen = tensors_.find(wanted.name);
    if (seen == tensors_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(path_, " has no tensor ", wanted.name,
                                                     " of shape ", ShapeText(wanted.shape),
                                                     ", which the model needs"));
    }
    const Tensor& tensor = seen->second;
    if (tensor.dtype != "F32" || tensor.shape != wanted.shape) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ": tensor ", wanted.name, " is ", tensor.dtype, " ",
                       ShapeText(tensor.shape), ", the model needs F32 ", ShapeText(wanted.shape)));
    }
  }
  for (const auto& [name, tensor] : tensors_) {
    if (layout.Find(name) == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, " has tensor ", name, ", which the model does not know"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> TrainedWeights::Floats(const std::string& name) const {
  const auto tensor = tensors_.find(name);
  if (tensor != tensors_.end() && tensor->second.dtype == "F32") return tensor->second.values;
  return absl::NotFoundError(absl::StrCat(path_, " has no tensor ", name, " of type F32"));
}

absl::Status TrainedWeights::Read(const Layout& layout, ElementRange range,
                                  absl::Span<float> weights) const {
  for (const TensorSlice& slice : SlicesOf(layout, range, /*state_name=*/"")) {
    ASSIGN_OR_RETURN(const absl::Span<const float> values, Floats(slice.tensor));
    std::memcpy(weights.data() + (slice.range.begin - range.begin),
                values.data() + (slice.range.begin - layout.Find(slice.tensor)->offset),
                slice.range.size() * sizeof(float));
  }
  return absl::OkStatus();
}

}  // namespace lodestar
