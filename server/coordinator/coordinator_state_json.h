// SPDX-License-Identifier: Apache-2.0

// Converts a CoordinatorState to JSON and back, for the manifest of a checkpoint.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/coordinator/checkpoints/coordinator_state.h"

namespace lodestar::coordinator {

// Returns one JSON object, in which every number is exact.
std::string CoordinatorStateToJson(const checkpoints::CoordinatorState& state);

// Returns the state that the JSON object `text` has. Errors: DataLoss (a field, which the message
// names, is not JSON, missing, of another type or out of range).
absl::StatusOr<checkpoints::CoordinatorState> CoordinatorStateFromJson(absl::string_view text);

}  // namespace lodestar::coordinator
