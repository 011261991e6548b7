// What the servers upstream want a site to do next, one of its rounds at a time, and what came of
// it. Plain data. A site is a server with its workers that is one worker of another server.
#pragma once

#include <cstdint>
#include <vector>

#include "server/coordinator/rounds/evaluation_course.h"

namespace lodestar {

struct SiteOrder {
  enum class Kind : uint8_t { kTrain, kEvaluate };
  Kind kind = Kind::kTrain;
  // The site has other weights than after the order before: what its workers have pulled since is
  // of no use.
  bool has_new_weights = false;
  // kTrain: as in Grant, for all members together.
  int64_t first_sample = 0;
  int64_t first_position = 0;
  int64_t num_samples = 0;             // for all local steps together
  std::vector<double> learning_rates;  // one per local step
  // kEvaluate: as in Grant.
  int64_t first_heldout_sample = 0;
  int64_t num_heldout_samples = 0;
  int64_t evaluation_set_size = 0;
};

// Sums over the members that have handed in their part.
struct SiteOutcome {
  double loss_sum = 0.0;  // nats
  int64_t num_predictions = 0;
  int64_t num_samples = 0;
  HeldoutSums heldout;
};

}  // namespace lodestar
