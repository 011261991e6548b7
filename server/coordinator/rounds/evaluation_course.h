// Evaluations between their beginning and their result. Every data set that some worker has is
// evaluated by workers that have it, in their next round; the result is over all of them, each
// held-out sample counted alike. Where a round has all workers that is one round; where workers go
// on one by one, the parts come in by and by. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/runtime/ids.h"

namespace lodestar {

// What held-out samples added up to.
struct HeldoutSums {
  double loss_sum = 0.0;  // nats
  int64_t correct = 0;
  int64_t predictions = 0;
  bool complete = true;  // nothing was lost with a worker

  void Add(const HeldoutSums& other);
  friend bool operator==(const HeldoutSums&, const HeldoutSums&) = default;
};

class EvaluationCourse {
 public:
  // Held-out samples of one data set.
  struct Part {
    size_t data_set = 0;
    int64_t num_samples = 0;
    friend bool operator==(const Part&, const Part&) = default;
  };

  // All that it knows.
  struct Memory {
    int64_t last = 0;                           // evaluation begun
    std::map<size_t, int64_t> owed;             // samples by data set, of the last one
    std::map<Round, int64_t> travelling;        // evaluations by the rounds that carry their parts
    std::map<int64_t, HeldoutSums> unfinished;  // by evaluation
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  EvaluationCourse() = default;
  explicit EvaluationCourse(Memory memory) : memory_(std::move(memory)) {}
  const Memory& memory() const { return memory_; }

  // Every part of the evaluation begun last is with a worker.
  bool can_begin() const { return memory_.owed.empty(); }
  // Requires: can_begin().
  void Begin(absl::Span<const Part> parts);
  // The parts that these data sets still owe; from here on they travel with the round.
  std::vector<Part> Take(Round round, absl::Span<const size_t> data_sets);
  // Workers have no other data sets than these any more. `data_sets` are ascending.
  void KeepOnly(absl::Span<const size_t> data_sets);

  // The round is over, with these sums of the parts that it carried, if any. Returns an evaluation
  // that has nothing outstanding any more and found at least one worker.
  std::optional<HeldoutSums> Return(Round round, const HeldoutSums& sums);
  // The round was lost with its worker.
  void Lose(Round round);

 private:
  Memory memory_;
};

}  // namespace lodestar
