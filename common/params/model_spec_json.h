// SPDX-License-Identifier: Apache-2.0

// ModelSpec as JSON text and as the text of a model file. Checkpoints and exported files have the
// JSON text, to say which model they hold.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/params/model_spec.h"

namespace lodestar::params {

// Key of the JSON text in the "__metadata__" of a safetensors file.
inline constexpr char kModelMetadataKey[] = "lodestar.model";

// Returns one line: {"name": ..., "mlp" | "cnn" | "gpt" | "client": {fields as in model_spec.h}}.
std::string ModelSpecToJson(const ModelSpec& spec);

// Returns one line in the text form of ModelSpec in proto/model.proto, which --model=FILE reads.
std::string ModelSpecToModelFile(const ModelSpec& spec);

// Reads the text of ModelSpecToJson(). Errors: InvalidArgument naming what is missing or wrong;
// those of ValidateModelSpec().
absl::StatusOr<ModelSpec> ModelSpecFromJson(absl::string_view text);

}  // namespace lodestar::params
