#include "server/optimizer/averaging.h"

namespace lodestar {

bool Averaging::Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
                      absl::Span<const ElementRange> /*decay*/) const {
  return rule_->Apply({.step = call.step}, vectors, {});
}

}  // namespace lodestar
