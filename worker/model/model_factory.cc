// MakeModel(): the only place that chooses among the architectures.
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/cnn_model.h"
#include "worker/model/gpt_model.h"
#include "worker/model/mlp_model.h"
#include "worker/model/model.h"

namespace lodestar {
namespace {

using ModelOrError = absl::StatusOr<std::unique_ptr<Model>>;

struct ModelMaker {
  const ModelConfig& config;
  Device* device;

  ModelOrError operator()(const MlpSpec&) const { return MlpModel::Create(config, device); }
  ModelOrError operator()(const CnnSpec&) const { return CnnModel::Create(config, device); }
  ModelOrError operator()(const GptSpec&) const { return GptModel::Create(config, device); }
  ModelOrError operator()(const ClientModelSpec&) const {
    return absl::InvalidArgumentError(
        absl::StrCat("model '", config.spec.name,
                     "' is computed by the client that brings it; this worker cannot train it"));
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelConfig& config, Device* device) {
  if (config.max_batch < 1) {
    return absl::InvalidArgumentError(absl::StrCat("micro-batch of model '", config.spec.name,
                                                   "' is ", config.max_batch,
                                                   " samples; it must be at least 1"));
  }
  return std::visit(ModelMaker{config, device}, config.spec.architecture);
}

}  // namespace lodestar
