// SPDX-License-Identifier: Apache-2.0

// Cuts the parameters into fragments, for local_sgd with --fragments. Each round exchanges one
// fragment. Also says how many local steps lie between two rounds. Pure; both sides compute the
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

namespace lodestar::job {

// Says in which rounds a bucket is exchanged.
struct FragmentTurn {
  int fragment = 0;
  int num_fragments = 1;

  bool IsDue(Round round) const { return round.value() % num_fragments == fragment; }
};

class FragmentPlan {
 public:
  // `buckets` are all buckets of one or more shards, in order. Each shard is cut separately. The
  // part of a shard in a fragment is contiguous. These parts have as equal a size as the buckets
  // allow. Requires: num_fragments >= 1.
  FragmentPlan(absl::Span<const params::Bucket> buckets, int num_fragments);

  // Checks that every fragment has a bucket. Errors: InvalidArgument if there are fewer buckets
  // than fragments.
  absl::Status CheckComplete() const;

  // Returns the turn of the bucket at `position` in `buckets`.
  FragmentTurn TurnOf(int64_t position) const { return {fragments_[position], num_fragments_}; }
  // Returns the positions of the buckets that the round exchanges, ascending.
  std::vector<uint32_t> DueIn(Round round) const;
  // Returns the number of elements of `buckets` that are in a fragment.
  int64_t ElementsOf(int fragment) const { return elements_[fragment]; }

 private:
  const int num_fragments_;
  std::vector<int> fragments_;     // fragment of each bucket, by position
  std::vector<int64_t> elements_;  // number of elements of each fragment
};

// Returns the number of local steps that a worker makes for the grant of this round. The steps of
// all rounds of a cycle are --local_steps together. If --local_steps is not a multiple of the
// number of fragments, some rounds have one step more than others.
int StepsOfWindow(const JobSpec& job, Round round);

}  // namespace lodestar::job
