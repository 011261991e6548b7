// What HTTP says for an error of ours.
#pragma once

#include "absl/status/status.h"

namespace lodestar {

// Requires: !error.ok().
int HttpCodeOf(const absl::Status& error);

}  // namespace lodestar
