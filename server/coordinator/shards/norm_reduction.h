// Gradient clipping over several shards: collects every shard's sums of squares of a round until
// they make the total. Pure data.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/runtime/ids.h"

namespace lodestar {

// Memory: one vector of sums per shard for each open round, and the totals of the last few rounds,
// for shards that have missed them.
class NormReduction {
 public:
  // All that it knows beside the number of shards.
  struct Memory {
    std::map<Round, std::map<int, std::vector<double>>> open;  // by shard
    std::map<Round, double> totals;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  explicit NormReduction(int num_shards, Memory memory = {})
      : num_shards_(num_shards), memory_(std::move(memory)) {}
  const Memory& memory() const { return memory_; }

  // Sums of squares of the averaged gradient, one per segment in order of the parameter space. What
  // comes again replaces what came before. True if all shards have theirs in, or had before.
  bool Add(Round round, int shard, std::vector<double> segment_sums);
  // Returns the total of a round for which Add() has returned true: the plain left-to-right sum
  // over the segments of shard 0, then those of shard 1, and so on. So it is the same to the bit
  // for any number of shards.
  double TotalOf(Round round) const { return memory_.totals.at(round); }
  const std::map<Round, double>& totals() const { return memory_.totals; }
  // The shards start anew.
  void Clear();

 private:
  int num_shards_;
  Memory memory_;
};

}  // namespace lodestar
