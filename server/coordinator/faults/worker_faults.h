// What is held against a worker for the numbers that it sends. Pure data.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/runtime/ids.h"

namespace lodestar {

class WorkerFaults {
 public:
  // What outlives the coordinator's process.
  struct Memory {
    int times_not_finite = 0;            // in a row, of the worker's process
    Incarnation not_finite_life;         // the life that was counted last
    uint64_t finite_reports_then = 0;    // of all workers
    std::vector<Round> poisoned_rounds;  // the latest, ascending; over all lives
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  WorkerFaults() = default;
  explicit WorkerFaults(Memory memory) : memory_(std::move(memory)) {}
  const Memory& memory() const { return memory_; }

  void BeginLife(bool is_same_process);
  // The worker's numbers in this life are not finite. Counts at most once per life. Counts no
  // further time while no other worker has reported finite numbers since the last one: then it may
  // not be this worker's fault. `finite_reports`: of all workers so far. Returns false if this life
  // is counted already.
  bool CountNotFinite(Incarnation incarnation, uint64_t finite_reports);
  void CountFinite() { memory_.times_not_finite = 0; }
  // How often in a row the newest process has sent what is not finite. 0 means that its last
  // numbers were finite, or are still to come.
  int times_not_finite() const { return memory_.times_not_finite; }

  // What the worker sent in this round was far longer than what others sent. Returns false if that
  // is counted already. Remembered are the rounds up to kPoisonWindow before the last of them.
  bool CountPoisoned(Round round);
  void ForgetPoisoned() { memory_.poisoned_rounds.clear(); }

 private:
  Memory memory_;
};

}  // namespace lodestar
