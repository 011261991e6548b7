// SPDX-License-Identifier: Apache-2.0

// Holds the evaluations that have begun and have no result yet. Each data set that a worker has is
// evaluated by the workers that have it, in their next round. The result has sums over the held-out
// samples of all data sets, so that each sample has the same weight. If a round has all workers,
// one round carries the whole evaluation. If workers have rounds of their own, several rounds carry
// its parts. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/runtime/ids.h"

namespace lodestar::rounds {

// Sums over held-out samples.
struct HeldoutSums {
  double loss_sum = 0.0;  // nats
  int64_t correct = 0;
  int64_t predictions = 0;
  bool complete = true;  // false if a part was lost with its worker

  void Add(const HeldoutSums& other);
  friend bool operator==(const HeldoutSums&, const HeldoutSums&) = default;
};

class EvaluationCourse {
 public:
  // The held-out samples of one data set in an evaluation.
  struct Part {
    size_t data_set = 0;
    int64_t num_samples = 0;
    friend bool operator==(const Part&, const Part&) = default;
  };

  // The whole state of this object.
  struct Memory {
    int64_t last = 0;                           // number of the newest evaluation, from 1
    std::map<size_t, int64_t> owed;             // data set -> samples of `last` to be handed out
    std::map<Round, int64_t> travelling;        // round that carries parts -> their evaluation
    std::map<int64_t, HeldoutSums> unfinished;  // evaluation -> its sums so far
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  EvaluationCourse() = default;
  explicit EvaluationCourse(Memory memory) : memory_(std::move(memory)) {}
  const Memory& memory() const { return memory_; }

  // Returns true if all parts of the newest evaluation were given to workers.
  bool can_begin() const { return memory_.owed.empty(); }
  // Begins an evaluation with these parts. Requires: can_begin().
  void Begin(absl::Span<const Part> parts);
  // Hands out the parts of these data sets that no worker has yet. They belong to `round` from now
  // on.
  std::vector<Part> Take(Round round, absl::Span<const size_t> data_sets);
  // Keeps only the parts of `data_sets`, which is ascending. Drops all other parts, because no
  // worker has their data sets any more. Their evaluation is then incomplete.
  void KeepOnly(absl::Span<const size_t> data_sets);

  // Must be called when a round has ended. `sums` are those of the parts that the round carried.
  // Returns the result of an evaluation if all its parts are back and it has predictions. Not set
  // means that there is none.
  std::optional<HeldoutSums> Return(Round round, const HeldoutSums& sums);
  // Marks the evaluation of the parts that this round carried as incomplete: the round was lost
  // with its worker.
  void Lose(Round round);

 private:
  Memory memory_;
};

}  // namespace lodestar::rounds
