// SPDX-License-Identifier: Apache-2.0

// Splits a vector into the pieces with and without weight decay.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/params/layout.h"
#include "server/optimizer/optimizer.h"

namespace lodestar::optimizer {

// Returns the elements `range` of every vector.
OptimizerVectors SubVectors(const OptimizerVectors& vectors, params::ElementRange range);

// Calls `apply` for every piece that is not empty, in order. Each element is in one piece. `decays`
// says whether the piece lies in a decay range. Returns true if `apply` returned true for all
// pieces.
bool ForEachDecayPiece(const OptimizerVectors& vectors,
                       absl::Span<const params::ElementRange> decay,
                       absl::FunctionRef<bool(const OptimizerVectors& piece, bool decays)> apply);

}  // namespace lodestar::optimizer
