// DelayedStep is one step of the optimizer in several parts (delayed Nesterov, arXiv:2401.09135,
// algorithm 3). Each contribution takes effect when it comes, as its share of the mean of those
// that one step is made of. The last of them ends the step. How many they are is decided when the
// first comes. The class is plain data; there is one per bucket.
#pragma once

#include <cstdint>

#include "common/runtime/check.h"
#include "server/optimizer/optimizer.h"

namespace lodestar::shard {

class DelayedStep {
 public:
  // All that outlives a process.
  struct Memory {
    int64_t num_parts = 0;       // of the step that is begun; 0 means that none is
    int64_t arrived = 0;         // of them
    int64_t planned_weight = 0;  // of all of them, if each is a usual one
    int64_t arrived_weight = 0;
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  DelayedStep() = default;
  explicit DelayedStep(const Memory& memory) : memory_(memory) {}
  const Memory& memory() const { return memory_; }

  // The next contribution, whose weight is `weight` where that of a usual one is `usual_weight`,
  // both above 0. `num_parts`, at least 1, is looked at if it is the first of a step.
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
