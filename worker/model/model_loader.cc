// SPDX-License-Identifier: Apache-2.0

#include "worker/model/model_loader.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"
#include "worker/model/device_memory.h"

namespace lodestar::model {
namespace {

int64_t LargestTensor(const params::Layout& layout) {
  int64_t largest = 0;
  for (const params::TensorSpec& tensor : layout.tensors()) {
    largest = std::max(largest, tensor.num_elements());
  }
  return largest;
}

absl::Status CheckFinite(const std::string& path, const std::string& tensor,
                         absl::Span<const float> values) {
  const auto wrong =
      std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  if (wrong == values.end()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, ": tensor ", tensor, " has ", *wrong, " as element ", wrong - values.begin(), " of ",
      values.size(),
      ", which is not a finite number, so its training had diverged; give an earlier checkpoint"));
}

}  // namespace

absl::Status LoadParameters(const checkpoints::TrainedWeights& weights, Model* model,
                            kernels::Device* device) {
  RETURN_IF_ERROR(weights.CheckTensors(model->layout()));
  const kernels::Buf parameters = model->parameters();
  const int64_t largest = LargestTensor(model->layout());
  ASSIGN_OR_RETURN(const DeviceMemory memory,
                   DeviceMemory::Allocate(device, largest * sizeof(float)));
  std::vector<float> values(largest);
  const kernels::Buf staged{memory.data(), kernels::DType::kF32, largest};
  for (const params::TensorSpec& tensor : model->layout().tensors()) {
    const int64_t count = tensor.num_elements();
    RETURN_IF_ERROR(weights.Read(model->layout(), {tensor.offset, tensor.offset + count},
                                 absl::MakeSpan(values).first(count)));
    RETURN_IF_ERROR(CheckFinite(weights.path(), tensor.name, absl::MakeSpan(values).first(count)));
    device->Copy(staged.data, values.data(), count * sizeof(float), kernels::StreamKind::kCompute);
    device->Cast(parameters.Slice(tensor.offset, count), staged.Slice(0, count), 1.0,
                 kernels::StreamKind::kCompute);
    // Waits until the copy is done, because `values` is overwritten next.
    RETURN_IF_ERROR(device->Synchronize(device->Record(kernels::StreamKind::kCompute)));
  }
  model->RefreshNarrowParameters();
  return device->Synchronize(device->Record(kernels::StreamKind::kCompute));
}

absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& path, int64_t max_batch,
                                                 kernels::Device* device) {
  ASSIGN_OR_RETURN(const std::unique_ptr<checkpoints::TrainedWeights> weights,
                   checkpoints::TrainedWeights::Open(storage::FileSystem::Real(), path));
  ASSIGN_OR_RETURN(params::ModelSpec spec, weights->Spec());
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, MakeModel({std::move(spec), max_batch}, device));
  RETURN_IF_ERROR(LoadParameters(*weights, model.get(), device));
  return model;
}

}  // namespace lodestar::model
