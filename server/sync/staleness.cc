#include "server/sync/staleness.h"

#include <algorithm>

namespace lodestar {

double AsyncLearningRateFactor(StalenessScaling scaling, int64_t staleness) {
  if (scaling == StalenessScaling::kNone) return 1.0;
  return 1.0 / (1.0 + static_cast<double>(std::max<int64_t>(staleness, 0)));
}

}  // namespace lodestar
