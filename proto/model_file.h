// Model specs in files: --model=FILE.textproto, text form of ModelSpec in proto/model.proto.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/params/model_spec.h"

namespace lodestar::wire {

// Errors: InvalidArgument with file, line and column of the first mistake, or what
// ValidateModelSpec() says; NotFound or PermissionDenied with the file's name.
absl::StatusOr<ModelSpec> LoadModelSpec(const std::string& path);

// The model that --model=MODEL names: a preset, else what the file MODEL has. Errors:
// InvalidArgument if it is neither; those of LoadModelSpec(), with the flag.
absl::StatusOr<ModelSpec> NamedModel(const std::string& model);

// A sentence for people if `model` is a preset and also a file, which is then not read. Empty if it
// is not both.
std::string HiddenModelFile(const std::string& model);

// `source` names the text in errors.
absl::StatusOr<ModelSpec> ParseModelSpec(const std::string& text, absl::string_view source);

}  // namespace lodestar::wire
