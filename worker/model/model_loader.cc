#include "worker/model/model_loader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model_spec_json.h"
#include "common/status_macros.h"
#include "worker/model/device_memory.h"

namespace lodestar {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ","), "]");
}

// Of the tensor `want`, after checking that `file` has it in that shape.
absl::StatusOr<absl::Span<const float>> ValuesOf(const SafetensorsReader& file,
                                                 const TensorSpec& want) {
  const SafetensorsTensor* found = file.Find(want.name);
  if (found == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), " has no tensor '", want.name,
                                                   "' of shape ", ShapeText(want.shape),
                                                   "; is it a file of this model?"));
  }
  if (found->shape != want.shape) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": tensor '", want.name, "' has shape ", ShapeText(found->shape),
                     ", the model wants ", ShapeText(want.shape), "; is it a file of this model?"));
  }
  return file.Floats(want.name);
}

int64_t LargestTensor(const Layout& layout) {
  int64_t largest = 0;
  for (const TensorSpec& tensor : layout.tensors()) {
    largest = std::max(largest, tensor.num_elements());
  }
  return largest;
}

absl::StatusOr<ModelSpec> SpecOf(const SafetensorsReader& file) {
  const auto found = file.metadata().find(kModelMetadataKey);
  if (found == file.metadata().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), " does not say which model it holds (no metadata '",
                     kModelMetadataKey, "'); files written by psctl export do"));
  }
  return ModelSpecFromJson(found->second);
}

}  // namespace

absl::Status LoadParameters(const SafetensorsReader& file, Model* model, Device* device) {
  const Buf parameters = model->parameters();
  const int64_t largest = LargestTensor(model->layout());
  ASSIGN_OR_RETURN(const DeviceMemory memory,
                   DeviceMemory::Allocate(device, largest * sizeof(float)));
  const Buf staged{memory.data(), DType::kF32, largest};
  for (const TensorSpec& tensor : model->layout().tensors()) {
    ASSIGN_OR_RETURN(const absl::Span<const float> values, ValuesOf(file, tensor));
    const int64_t count = tensor.num_elements();
    device->Copy(staged.data, values.data(), values.size() * sizeof(float), StreamKind::kCompute);
    device->Cast(parameters.Slice(tensor.offset, count), staged.Slice(0, count), 1.0,
                 StreamKind::kCompute);
  }
  model->RefreshShadow();
  return device->Synchronize(device->Record(StreamKind::kCompute));
}

absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& path, int64_t max_batch,
                                                 Device* device) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> file, SafetensorsReader::Open(path));
  ASSIGN_OR_RETURN(ModelSpec spec, SpecOf(*file));
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, MakeModel({std::move(spec), max_batch}, device));
  RETURN_IF_ERROR(LoadParameters(*file, model.get(), device));
  return model;
}

}  // namespace lodestar
