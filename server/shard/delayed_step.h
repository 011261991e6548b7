// SPDX-License-Identifier: Apache-2.0

// A DelayedStep is one step of the optimizer to which several contributions belong (delayed
// Nesterov, arXiv:2401.09135, algorithm 3). Each contribution takes effect when it comes, with its
// share of the mean of all contributions of the step. The last contribution ends the step. The
// number of contributions is decided when the first one comes. The class is plain data, and each
// bucket has its own.
#pragma once

#include <cstdint>

#include "common/runtime/check.h"
#include "server/optimizer/optimizer.h"

namespace lodestar::shard {

class DelayedStep {
 public:
  // The data that must survive a restart.
  struct Memory {
    int64_t num_parts = 0;       // parts of the step that is begun; 0 means that no step is begun
    int64_t arrived = 0;         // number of these parts that have come
    int64_t planned_weight = 0;  // weight of all parts, if each has the usual weight
    int64_t arrived_weight = 0;
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  DelayedStep() = default;
  explicit DelayedStep(const Memory& memory) : memory_(memory) {}
  const Memory& memory() const { return memory_; }

  // Adds the next contribution, whose weight is `weight`. A usual contribution has weight
  // `usual_weight`. Both must be above 0. `num_parts`, at least 1, is used only if this
  // contribution is the first of a step.
  optimizer::StepPart Add(int64_t weight, int64_t usual_weight, int num_parts) {
    LODESTAR_CHECK(weight > 0 && usual_weight > 0 && num_parts > 0);
    optimizer::StepPart part;
    part.is_first = memory_.arrived == 0;
    if (part.is_first) memory_ = {num_parts, 0, num_parts * usual_weight, 0};
    ++memory_.arrived;
    memory_.arrived_weight += weight;
    part.factor = static_cast<float>(static_cast<double>(weight) /
                                     static_cast<double>(memory_.planned_weight));
    part.is_last = memory_.arrived >= memory_.num_parts;
    if (!part.is_last) return part;
    if (memory_.arrived_weight != memory_.planned_weight) {
      part.rescale = static_cast<float>(static_cast<double>(memory_.planned_weight) /
                                        static_cast<double>(memory_.arrived_weight));
    }
    memory_ = {};
    return part;
  }

 private:
  Memory memory_;
};

}  // namespace lodestar::shard
