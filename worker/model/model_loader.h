// A model with its trained weights from one safetensors file, as `psctl export` writes it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/safetensors.h"
#include "kernels/device.h"
#include "worker/model/model.h"

namespace lodestar {

// The file's metadata says which model it is (common/model_spec_json.h). `device` must outlive the
// model. Errors: those of SafetensorsReader::Open() and MakeModel(); InvalidArgument naming file
// and tensor if the metadata is missing or the tensors are not those of the model.
absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& path, int64_t max_batch,
                                                 Device* device);

// Copies all tensors of the model's layout from `file` into model->parameters().
// Errors: InvalidArgument naming file and tensor for a tensor that is missing or of another shape
// or dtype.
absl::Status LoadParameters(const SafetensorsReader& file, Model* model, Device* device);

}  // namespace lodestar
