// Cuts the parameters into fragments, of which each round exchanges one (local_sgd with
// --fragments), and says how many local steps lie between two rounds. Pure; both sides compute the
// same plan.
//
// Fragments take turns: round r exchanges fragment r % num_fragments, so that every element is
// exchanged once in num_fragments rounds, a cycle (Streaming DiLoCo, arXiv:2501.18512). Each shard
// is cut by itself, so that the servers share the traffic of every round.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/job/job_spec.h"
#include "common/params/bucket_plan.h"
#include "common/runtime/ids.h"

namespace lodestar {

// When a bucket takes part.
struct FragmentTurn {
  int fragment = 0;
  int num_fragments = 1;

  bool IsDue(Round round) const { return round.value() % num_fragments == fragment; }
};

class FragmentPlan {
 public:
  // `buckets`: of all shards or of some, whole shards, in order: the same bucket is in the same
  // fragment either way. The parts of a shard have as nearly equal bytes as its buckets allow, and
  // each part is contiguous. num_fragments >= 1.
  FragmentPlan(absl::Span<const Bucket> buckets, int num_fragments);

  // InvalidArgument if some fragment has no bucket: there are fewer buckets than fragments.
  absl::Status CheckComplete() const;

  // `position`: in `buckets`.
  FragmentTurn TurnOf(int64_t position) const { return {fragments_[position], num_fragments_}; }
  // Positions of the buckets that the round exchanges, ascending.
  std::vector<uint32_t> DueIn(Round round) const;
  // Returns how many elements of all `buckets` are in a fragment.
  int64_t ElementsOf(int fragment) const { return elements_[fragment]; }

 private:
  const int num_fragments_;
  std::vector<int> fragments_;     // by position
  std::vector<int64_t> elements_;  // by fragment
};

// Local steps that are made on the grant of this round. --local_steps is a whole cycle; where that
// is no multiple of the fragments, the windows of a cycle differ by one.
int StepsOfWindow(const JobSpec& job, Round round);

}  // namespace lodestar
