// StepForecast: which samples the steps after the one at hand will have, for programs that load
// data ahead. Within a grant that is certain. Beyond it, it is a guess: the following grants have
// as many samples, and begin as far from each other, as the last two of this worker; before there
// are two, they follow each other. That holds while nobody joins or leaves. Plain data.
#pragma once

#include <optional>
#include <vector>

#include "common/cluster_messages.h"
#include "worker/data/dataset.h"
#include "worker/data/sample_order.h"

namespace lodestar {

struct ExpectedStep {
  int64_t rounds_ahead = 0;  // grants after the one at hand; 0: it is certain
  int step = 0;              // of the round, of num_steps
  int num_steps = 1;
  std::vector<SampleRef> samples;  // at least one
};

struct StepForecast {
  std::optional<SampleOrder> order = {};  // of the worker's data
  std::optional<Grant> last = {};         // of training, of this life
  std::optional<Grant> before = {};       // the one before it
  int step = -1;                          // of `last`, at hand; -1: its first one is still to come

  // A grant is carried out next; another time, if it was given again.
  void OnGrant(const Grant& grant);
  // The step of training that comes `ahead` steps after the one at hand; 1: the next. None: there
  // was no grant of training, or nobody counts that far.
  std::optional<ExpectedStep> Expect(int ahead) const;
};

}  // namespace lodestar
