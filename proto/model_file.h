// SPDX-License-Identifier: Apache-2.0

// Reads model specs from files (--model=FILE.textproto), in the text form of ModelSpec in
// proto/model.proto.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/params/model_spec.h"

namespace lodestar::wire {

// Reads a model spec. Errors: InvalidArgument with file, line and column of the first mistake;
// those of ValidateModelSpec(); NotFound or PermissionDenied with the file's name.
absl::StatusOr<params::ModelSpec> LoadModelSpec(const std::string& path);

// Returns the model that --model=MODEL names: a preset, or the content of the file MODEL. Errors:
// InvalidArgument (neither exists); those of LoadModelSpec(). The text of an error names the flag.
absl::StatusOr<params::ModelSpec> NamedModel(const std::string& model);

// Returns a message if `model` is the name of both a preset and a file, so that the file is not
// read. Empty means that `model` names only one of the two.
std::string HiddenModelFile(const std::string& model);

// Parses a model spec. `source` names the text in errors.
absl::StatusOr<params::ModelSpec> ParseModelSpec(const std::string& text, absl::string_view source);

}  // namespace lodestar::wire
