// SPDX-License-Identifier: Apache-2.0

#include "server/limits/origin_places.h"

namespace lodestar::limits {

OriginPlaces::Place OriginPlaces::Take(absl::string_view origin) {
  {
    absl::MutexLock lock(&state_->mutex);
    const auto of_origin = state_->of_origin.find(origin);
    const int taken = of_origin == state_->of_origin.end() ? 0 : of_origin->second;
    if (state_->num_taken >= state_->config.in_all || taken >= state_->config.of_origin) {
      return nullptr;
    }
    ++state_->num_taken;
    ++state_->of_origin[std::string(origin)];
  }
  return Place(state_.get(), [state = state_, origin = std::string(origin)](const void*) {
    absl::MutexLock lock(&state->mutex);
    --state->num_taken;
    const auto of_origin = state->of_origin.find(origin);
    if (--of_origin->second == 0) state->of_origin.erase(of_origin);
  });
}

}  // namespace lodestar::limits
