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
  // Records that the worker's numbers in this life are not finite. Counts at most once per life. If
  // no worker has reported finite numbers since the last count, nothing is counted, because the
  // fault may not be this worker's. `finite_reports` is the number of finite reports of all workers
  // so far. Returns false if this life was recorded before.
  bool CountNotFinite(Incarnation incarnation, uint64_t finite_reports);
  void CountFinite() { memory_.times_not_finite = 0; }
  // Returns how often in a row the newest process has sent numbers that are not finite. 0 means
  // that its last numbers were finite, or that it has sent none yet.
  int times_not_finite() const { return memory_.times_not_finite; }

  // Counts a round in which the worker's contribution was far longer than those of the others, or
  // pointed in the opposite direction. Returns false if this round was counted before. Remembers
  // only the counted rounds among the last kPoisonWindow rounds up to the newest counted round.
  bool CountPoisoned(Round round);
  void ForgetPoisoned() { memory_.poisoned_rounds.clear(); }

 private:
  Memory memory_;
};

}  // namespace lodestar::faults
