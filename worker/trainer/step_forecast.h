// SPDX-License-Identifier: Apache-2.0

// StepForecast says which samples the next steps will have, for programs that load data ahead.
// Within the present grant the forecast is certain. For later grants it assumes that the number of
// samples and the distance between grants stay the same. The distance comes from this worker's last
// two grants. Before the second grant, it assumes no gap between grants. These assumptions are
// right as long as no worker joins or leaves.
#pragma once

#include <optional>
#include <vector>

#include "common/messages/cluster_messages.h"
#include "worker/data/dataset.h"
#include "worker/data/sample_order.h"

namespace lodestar::trainer {

struct ExpectedStep {
  // Number of grants after the present one. 0 means the present grant, whose steps are certain.
  int64_t rounds_ahead = 0;
  int step = 0;  // Number of the step in its round, below num_steps.
  int num_steps = 1;
  std::vector<data::SampleRef> samples;  // At least one sample.
};

struct StepForecast {
  std::optional<data::SampleOrder> order = {};  // The order of the worker's data.
  std::optional<messages::Grant> last = {};     // The last training grant of this life.
  std::optional<messages::Grant> before = {};   // The training grant before `last`.
  // The present step of `last`. -1 means that its first step has not begun.
  int step = -1;

  // Must be called before a grant is carried out, also if the same grant is given again.
  void OnGrant(const messages::Grant& grant);
  // Returns the training step that comes `ahead` steps after the present one. 1 means the next
  // step. Returns nullopt if there was no training grant, if `order` is not set, or if a sample's
  // number would overflow.
  std::optional<ExpectedStep> Expect(int ahead) const;
};

}  // namespace lodestar::trainer
