// SPDX-License-Identifier: Apache-2.0

// An order of the upstream servers to a site, and its outcome. The site carries out each order as
// one of its rounds. Plain data. A site is a server with workers. Together they are one worker of
// the upstream servers.
#pragma once

#include <cstdint>
#include <vector>

#include "server/coordinator/rounds/evaluation_course.h"

namespace lodestar::rounds {

struct SiteOrder {
  enum class Kind : uint8_t { kTrain, kEvaluate };
  Kind kind = Kind::kTrain;
  // True means that the weights of the site have changed since the previous order. Workers must not
  // use weights that they pulled before this order.
  bool has_new_weights = false;
  // The next fields are for kTrain. They are as in Grant, but for all members together.
  int64_t first_sample = 0;
  int64_t first_position = 0;
  int64_t num_samples = 0;             // for all local steps together
  std::vector<double> learning_rates;  // one per local step
  // The next fields are for kEvaluate. They are as in Grant, but for all members together.
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
