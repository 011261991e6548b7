// Walks a vector in the pieces that weight decay cuts it into.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/params/layout.h"
#include "server/optimizer/optimizer.h"

namespace lodestar::optimizer {

// The same part of every vector.
OptimizerVectors SubVectors(const OptimizerVectors& vectors, ElementRange range);

// Calls `apply` for every piece in order, each element once; `decays` says whether the piece lies
// in a decay range. Empty pieces are left out. Returns whether `apply` was true for all of them.
bool ForEachDecayPiece(const OptimizerVectors& vectors, absl::Span<const ElementRange> decay,
                       absl::FunctionRef<bool(const OptimizerVectors& piece, bool decays)> apply);

}  // namespace lodestar::optimizer
