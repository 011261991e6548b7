// SPDX-License-Identifier: Apache-2.0

// Defines MakeModel() and EstimateModelMemory(). No other code branches on the architecture.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"
#include "worker/model/cnn_model.h"
#include "worker/model/gpt_model.h"
#include "worker/model/mlp_model.h"
#include "worker/model/model.h"
#include "worker/model/model_allocation.h"
#include "worker/model/model_memory.h"
#include "worker/model/replicated_model.h"

namespace lodestar::model {
namespace {

absl::Status ComputedByItsClient(const ModelConfig& config) {
  return absl::InvalidArgumentError(absl::StrCat(
      "model '", config.spec.name,
      "' is computed by a program of its own, so gpu_worker cannot train it; start that program"));
}

struct ModelMaker {
  using Result = absl::StatusOr<std::unique_ptr<Model>>;
  const ModelConfig& config;
  kernels::Device* device;

  Result operator()(const params::MlpSpec&) const {
    return AllocateModel<MlpModel>(config, device);
  }
  Result operator()(const params::CnnSpec&) const {
    return AllocateModel<CnnModel>(config, device);
  }
  Result operator()(const params::GptSpec&) const {
    return AllocateModel<GptModel>(config, device);
  }
  Result operator()(const params::ClientModelSpec&) const { return ComputedByItsClient(config); }
};

struct ModelPlanner {
  using Result = absl::StatusOr<PlannedBytes>;
  const ModelConfig& config;
  kernels::Device* device;

  Result operator()(const params::MlpSpec&) const { return PlanModel<MlpModel>(config, device); }
  Result operator()(const params::CnnSpec&) const { return PlanModel<CnnModel>(config, device); }
  Result operator()(const params::GptSpec&) const { return PlanModel<GptModel>(config, device); }
  Result operator()(const params::ClientModelSpec&) const { return ComputedByItsClient(config); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelConfig& config,
                                                 kernels::Device* device) {
  if (config.max_batch < 1) {
    return absl::InvalidArgumentError(absl::StrCat("micro-batch of model '", config.spec.name,
                                                   "' is ", config.max_batch,
                                                   " samples; it must be at least 1"));
  }
  return std::visit(ModelMaker{config, device}, config.spec.architecture);
}

absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelConfig& config,
                                                 const kernels::DeviceSet& devices) {
  if (devices.devices.size() == 1) return MakeModel(config, &devices.first());
  std::vector<std::unique_ptr<Model>> replicas;
  for (const std::unique_ptr<kernels::Device>& device : devices.devices) {
    ASSIGN_OR_RETURN(replicas.emplace_back(), MakeModel(config, device.get()));
  }
  return std::make_unique<ReplicatedModel>(std::move(replicas), &devices);
}

absl::StatusOr<ModelMemory> EstimateModelMemory(const ModelConfig& config,
                                                kernels::Device* device) {
  // Memory is a linear function of the number of samples, so two plans determine it. The plans have
  // many samples, so that the alignment of each buffer does not matter.
  constexpr int64_t kSamples = 256;
  ModelConfig planned = config;
  planned.max_batch = kSamples;
  ASSIGN_OR_RETURN(const PlannedBytes once,
                   std::visit(ModelPlanner{planned, device}, config.spec.architecture));
  planned.max_batch = 2 * kSamples;
  ASSIGN_OR_RETURN(const PlannedBytes twice,
                   std::visit(ModelPlanner{planned, device}, config.spec.architecture));
  ModelMemory memory;
  memory.parameter_bytes = once.parameters;
  // Each parameter has a value and a gradient. If the device computes in a narrower dtype, it also
  // has a narrow value.
  const kernels::DType compute = device->capabilities().compute;
  const auto wide = static_cast<int64_t>(kernels::DTypeBytes(kernels::StatisticsDType(compute)));
  const int64_t narrow =
      compute == kernels::StatisticsDType(compute) ? 0 : kernels::DTypeBytes(compute);
  const int64_t num_parameters = memory.parameter_bytes / (2 * wide + narrow);
  memory.gradient_bytes = num_parameters * wide;
  memory.narrow_bytes = num_parameters * narrow;
  memory.bytes_per_sample = (twice.activations - once.activations + kSamples - 1) / kSamples;
  memory.pinned_bytes_per_sample = (twice.pinned - once.pinned) / kSamples;
  memory.batch_bytes_per_sample = once.batch / kSamples;
  memory.fixed_bytes = std::max<int64_t>(0, once.activations - kSamples * memory.bytes_per_sample);
  return memory;
}

}  // namespace lodestar::model
