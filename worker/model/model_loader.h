// SPDX-License-Identifier: Apache-2.0

// Makes a model with trained weights from a checkpoint, or from a file that `psctl export` wrote.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoints/trained_weights.h"
#include "kernels/device.h"
#include "worker/model/model.h"

namespace lodestar::model {

// Makes the model that the files describe. `device` must outlive it. Errors: InvalidArgument naming
// file and tensor if the files describe no model or their tensors do not fit it; those of
// TrainedWeights::Open(), MakeModel() and LoadParameters().
absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& path, int64_t max_batch,
                                                 kernels::Device* device);

// Copies all tensors of the model's layout into model->parameters(). Errors: those of
// TrainedWeights::CheckTensors(); FailedPrecondition naming a tensor with a value that is not
// finite.
absl::Status LoadParameters(const checkpoints::TrainedWeights& weights, Model* model,
                            kernels::Device* device);

}  // namespace lodestar::model
