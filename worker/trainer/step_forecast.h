// StepForecast says which samples the steps after the one at hand will have, for programs that load
// data ahead. Within a grant that is certain. Beyond it, it is a guess. The guess is that the
// following grants have as many samples as the last grant, and begin as far from each other as this
// worker's last two. If there are not two yet, the grants are taken to follow each other. The guess
// holds while no worker joins or leaves. Plain data.
#pragma once

#include <optional>
#include <vector>

#include "common/messages/cluster_messages.h"
#include "worker/data/dataset.h"
#include "worker/data/sample_order.h"

namespace lodestar::trainer {

struct ExpectedStep {
  // The number of grants after the one at hand. 0 means that the step is certain.
  int64_t rounds_ahead = 0;
  int step = 0;  // The number of the step in its round, below num_steps.
  int num_steps = 1;
  std::vector<data::SampleRef> samples;  // There is at least one.
};

struct StepForecast {
  std::optional<data::SampleOrder> order = {};  // The order of the worker's data.
  std::optional<Grant> last = {};               // The last grant of training, in this life.
  std::optional<Grant> before = {};             // The grant before it.
  int step = -1;  // The step of `last` at hand. -1 means that its first one is still to come.

  // Must be called when a grant is carried out next, and again if the grant was given again.
  void OnGrant(const Grant& grant);
  // Returns the step of training that comes `ahead` steps after the one at hand. 1 means the next
  // step. Returns nothing if there was no grant of training, if `order` is not set, or if the
  // number of a sample would be too large.
  std::optional<ExpectedStep> Expect(int ahead) const;
};

}  // namespace lodestar::trainer
