// Where psctl may write a model.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace lodestar {

enum class Replace {
  kModels,  // a file that is new or empty, or a model that psctl wrote
  kAny,     // any regular file
};

// Checked before a model is asked for. Errors: FailedPrecondition if the file that is
// there may not be replaced, with what it is and what to do; those of CheckOutput().
absl::Status CheckModelOutput(const std::string& path, Replace replace);

}  // namespace lodestar
