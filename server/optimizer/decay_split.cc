// SPDX-License-Identifier: Apache-2.0

#include "server/optimizer/decay_split.h"

#include "common/runtime/check.h"

namespace lodestar::optimizer {

OptimizerVectors SubVectors(const OptimizerVectors& vectors, params::ElementRange range) {
  const size_t begin = range.begin;
  const size_t size = range.size();
  OptimizerVectors part = {
      .gradient = vectors.gradient.subspan(begin, size),
      .weights_in = vectors.weights_in.subspan(begin, size),
      .weights_out = vectors.weights_out.subspan(begin, size),
      .state = {},
  };
  for (int i = 0; i < kMaxStateVectors; ++i) {
    if (!vectors.state[i].empty()) part.state[i] = vectors.state[i].subspan(begin, size);
  }
  return part;
}

bool ForEachDecayPiece(const OptimizerVectors& vectors,
                       absl::Span<const params::ElementRange> decay,
                       absl::FunctionRef<bool(const OptimizerVectors& piece, bool decays)> apply) {
  const auto num_elements = static_cast<int64_t>(vectors.gradient.size());
  bool all = true;
  int64_t done = 0;
  for (const params::ElementRange& range : decay) {
    LODESTAR_CHECK(done <= range.begin && range.begin <= range.end && range.end <= num_elements)
        << "the weight decay range of elements " << range.begin << " to " << range.end
        << " does not fit " << num_elements << " elements";
    if (done < range.begin) all &= apply(SubVectors(vectors, {done, range.begin}), false);
    if (range.size() > 0) all &= apply(SubVectors(vectors, range), true);
    done = range.end;
  }
  if (done < num_elements) all &= apply(SubVectors(vectors, {done, num_elements}), false);
  return all;
}

}  // namespace lodestar::optimizer
