// SPDX-License-Identifier: Apache-2.0

// Gradient clipping over several shards: collects the sums of squares of a round from all shards,
// and adds them up. Pure data.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/runtime/ids.h"

namespace lodestar::shards {

// Stores the sums of each shard for each open round. Also stores the totals of the last few rounds,
// for shards that have not received them.
class NormReduction {
 public:
  // What this object knows beside the number of shards.
  struct Memory {
    std::map<Round, std::map<int, std::vector<double>>> open;  // sums of each round by shard
    std::map<Round, double> totals;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  explicit NormReduction(int num_shards, Memory memory = {})
      : num_shards_(num_shards), memory_(std::move(memory)) {}
  const Memory& memory() const { return memory_; }

  // Adds a shard's sums of squares of the averaged gradient. There is one sum per segment, in the
  // order of the parameter space. They replace earlier sums of this shard. Returns true if the
  // total of the round is known now, or was known before.
  bool Add(Round round, int shard, std::vector<double> segment_sums);
  // Returns the total of a round. It adds up the segments of shard 0, then those of shard 1, and so
  // on. Because of this order, the total is the same to the bit for any number of shards. Requires:
  // Add() has returned true for the round.
  double TotalOf(Round round) const { return memory_.totals.at(round); }
  const std::map<Round, double>& totals() const { return memory_.totals; }
  // Forgets all rounds. Call when the shards start anew.
  void Clear();

 private:
  int num_shards_;
  Memory memory_;
};

}  // namespace lodestar::shards
