// SPDX-License-Identifier: Apache-2.0

// Makes models of every architecture with their memory, or computes the memory that a model would
// take. The template parameter M is a class derived from BatchedModel.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/params/layout.h"
#include "common/runtime/status_macros.h"
#include "kernels/device.h"
#include "worker/model/model.h"
#include "worker/model/parameter_arena.h"

namespace lodestar::model {

// Returns the layout of the model. Errors: those of BuildLayout().
inline absl::StatusOr<params::Layout> LayoutOf(const ModelConfig& config) {
  if (config.layout.has_value()) return *config.layout;
  return params::BuildLayout(config.spec);
}

// Makes a model and allocates its memory. Errors: those of MakeModel().
template <typename M>
absl::StatusOr<std::unique_ptr<M>> AllocateModel(const ModelConfig& config,
                                                 kernels::Device* device) {
  ASSIGN_OR_RETURN(params::Layout layout, LayoutOf(config));
  ASSIGN_OR_RETURN(auto parameters,
                   ParameterArena::Create(config.spec.name, std::move(layout),
                                          M::PaddingElements(config, device), device));
  auto model = std::make_unique<M>(config, std::move(parameters), device);
  RETURN_IF_ERROR(model->AllocateActivations());
  return model;
}

struct PlannedBytes {
  int64_t parameters = 0;
  int64_t activations = 0;
  int64_t pinned = 0;
  // Host memory for a HostBatch with the samples of one micro-batch.
  int64_t batch = 0;
};

// Returns the memory that a model would take. Errors: those of BuildLayout().
template <typename M>
absl::StatusOr<PlannedBytes> PlanModel(const ModelConfig& config, kernels::Device* device) {
  ASSIGN_OR_RETURN(params::Layout layout, LayoutOf(config));
  auto parameters = ParameterArena::CreateUnallocated(
      std::move(layout), M::PaddingElements(config, device), device->capabilities().compute);
  const int64_t parameter_bytes = parameters->num_bytes();
  const M model(config, std::move(parameters), device);
  return PlannedBytes{parameter_bytes, model.activation_bytes(), model.pinned_bytes(),
                      model.batch_bytes()};
}

}  // namespace lodestar::model
