// Opens the data under a path for a model; the only place that chooses among the readers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/model_spec.h"
#include "worker/data/dataset.h"

namespace lodestar {

struct DatasetConfig {
  std::string path;
  std::string format = "auto";  // auto, text, tokens, idx, cifar10
  uint64_t seed = 1;            // shifts text windows per epoch
};

// Validates everything before training: sizes, magic numbers, labels, tokens against the model's
// vocabulary, context, image size against the model's input. Errors: InvalidArgument or NotFound
// with file, offset and what was expected.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetConfig& config,
                                                     const ModelSpec& model);

}  // namespace lodestar
