// SPDX-License-Identifier: Apache-2.0

// What the servers upstream order a site to do, one round of the site at a time, and its outcome.
// Plain data. A site is a server with its workers that together are one worker of another server.
#pragma once

#include <cstdint>
#include <vector>

#include "server/coordinator/rounds/evaluation_course.h"

namespace lodestar::rounds {

struct SiteOrder {
  enum class Kind : uint8_t { kTrain, kEvaluate };
  Kind kind = Kind::kTrain;
  // True means that the weights of the site have changed since the previous order. Weights that its
  // workers have pulled meanwhile must not be used.
  bool has_new_weights = false;
  // For kTrain. The fields are as in Grant, for all members together.
  int64_t first_sample = 0;
  int64_t first_position = 0;
  int64_t num_samples = 0;             // for all local steps together
  std::vector<double> learning_rates;  // one per local step
  // For kEvaluate. The fields are as in Grant.
  int64_t first_heldout_sample = 0;
  int64_t num_heldout_samples = 0;
  int64_t evaluation_set_size = 0;
};

// Sums over the members that have reported.
struct SiteOutcome {
  double loss_sum = 0.0;  // nats
  int64_t num_predictions = 0;
  int64_t num_samples = 0;
  HeldoutSums heldout;
};

}  // namespace lodestar::rounds
