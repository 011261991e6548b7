// SPDX-License-Identifier: Apache-2.0

// WorkerFaults counts how often the numbers of one worker were wrong. Pure data.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/runtime/ids.h"

namespace lodestar::faults {

class WorkerFaults {
 public:
  // The state that outlives the coordinator's process.
  struct Memory {
    int times_not_finite = 0;            // number in a row, of the worker's newest process
    Incarnation not_finite_life;         // the life that last sent numbers that are not finite
    uint64_t finite_reports_then = 0;    // finite reports of all workers at that time
    std::vector<Round> poisoned_rounds;  // the latest rounds, ascending; over all lives
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  WorkerFaults() = default;
  explicit WorkerFaults(Memory memory) : memory_(std::move(memory)) {}
  const Memory& memory() const { return memory_; }

  void BeginLife(bool is_same_process);
  // Records that the worker's numbers in this life are not finite. Returns false if this life was
  // recorded before. `finite_reports` is the number of finite reports of all workers so far.
  //
  // times_not_finite() rises by one if it is 0, or if `finite_reports` has risen since the previous
  // record. Otherwise the fault may not be this worker's.
  bool CountNotFinite(Incarnation incarnation, uint64_t finite_reports);
  void CountFinite() { memory_.times_not_finite = 0; }
  // Returns how many times in a row the newest process has sent numbers that are not finite. 0
  // means that its last numbers were finite, or that it has sent none yet.
  int times_not_finite() const { return memory_.times_not_finite; }

  // Records a round in which the worker's contribution was far longer than those of the others, or
  // pointed in the opposite direction. Returns false if the round was recorded before. Forgets
  // rounds that are kPoisonWindow or more before the newest recorded round.
  bool CountPoisoned(Round round);
  void ForgetPoisoned() { memory_.poisoned_rounds.clear(); }

 private:
  Memory memory_;
};

}  // namespace lodestar::faults
