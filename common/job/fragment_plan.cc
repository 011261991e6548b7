// SPDX-License-Identifier: Apache-2.0

#include "common/job/fragment_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/runtime/check.h"

namespace lodestar::job {

FragmentPlan::FragmentPlan(absl::Span<const params::Bucket> buckets, int num_fragments)
    : num_fragments_(num_fragments), elements_(num_fragments, 0) {
  LODESTAR_CHECK(num_fragments >= 1) << num_fragments << " fragments";
  fragments_.reserve(buckets.size());
  for (size_t begin = 0; begin < buckets.size();) {
    size_t end = begin;
    int64_t shard_elements = 0;
    while (end < buckets.size() && buckets[end].shard == buckets[begin].shard) {
      shard_elements += buckets[end++].range.size();
    }
    // If a bucket lies across the end of a fragment, the middle of the bucket decides its fragment.
    int64_t before = 0;
    for (; begin < end; ++begin) {
      const int64_t size = buckets[begin].range.size();
      const int64_t middle = before + size / 2;
      const auto fragment = static_cast<int>(middle * num_fragments / shard_elements);
      fragments_.push_back(std::min(fragment, num_fragments - 1));
      elements_[fragments_.back()] += size;
      before += size;
    }
  }
}

absl::Status FragmentPlan::CheckComplete() const {
  const auto empty = std::find(elements_.begin(), elements_.end(), 0);
  if (empty == elements_.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--fragments=", num_fragments_, ": the model's ", fragments_.size(),
                   " buckets are too few or too unequal, so fragment ", empty - elements_.begin(),
                   " would be empty; give fewer fragments, or smaller buckets (--bucket_bytes)"));
}

std::vector<uint32_t> FragmentPlan::DueIn(Round round) const {
  std::vector<uint32_t> due;
  for (size_t i = 0; i < fragments_.size(); ++i) {
    if (TurnOf(static_cast<int64_t>(i)).IsDue(round)) due.push_back(static_cast<uint32_t>(i));
  }
  return due;
}

int StepsOfWindow(const JobSpec& job, Round round) {
  const int64_t turn = round.value() % job.fragments;
  const int64_t steps = job.local_steps;
  return static_cast<int>((turn + 1) * steps / job.fragments - turn * steps / job.fragments);
}

}  // namespace lodestar::job
