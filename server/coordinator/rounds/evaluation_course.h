// SPDX-License-Identifier: Apache-2.0

// Holds the evaluations that have begun and have no result yet. Pure.
// - Workers evaluate the held-out samples of their own data set, in their next round.
// - The result has sums over the held-out samples of all data sets. So all samples have the same
//   weight.
// - If all workers share a round, this round has all parts of the evaluation.
// - If each worker has rounds of its own, several rounds have one part each.
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

  // Returns true if all parts of the newest evaluation have been handed out to workers.
  bool can_begin() const { return memory_.owed.empty(); }
  // Begins an evaluation with these parts. Requires: can_begin().
  void Begin(absl::Span<const Part> parts);
  // Hands out those parts of these data sets that were not handed out yet. They belong to `round`
  // from now on.
  std::vector<Part> Take(Round round, absl::Span<const size_t> data_sets);
  // Drops all parts that were not handed out and are not of `data_sets`, because no worker has
  // their data sets any more. The evaluation is then incomplete. `data_sets` is ascending.
  void KeepOnly(absl::Span<const size_t> data_sets);

  // Must be called when a round has ended. Adds `sums`, the sums of the parts of this round, to
  // their evaluation. Returns the result of an evaluation whose parts have all been returned or
  // lost, if it has predictions. Otherwise returns nothing.
  std::optional<HeldoutSums> Return(Round round, const HeldoutSums& sums);
  // Records that the parts of this round are lost with their worker. Their evaluation is then
  // incomplete.
  void Lose(Round round);

 private:
  Memory memory_;
};

}  // namespace lodestar::rounds
