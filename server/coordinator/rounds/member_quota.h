// Says how many members there must be before any of them gets work. Pure.
#pragma once

#include "absl/time/time.h"
#include "common/job/job_spec.h"
#include "server/sync/cluster_policy.h"

namespace lodestar {

// --min_workers is for the start of this process. From the first work on --keep_workers counts, but
// that workers that were there get a lease's time to come back when the cluster starts anew.
class MemberQuota {
 public:
  MemberQuota(const JobSpec& job, absl::Duration lease)
      : min_workers_(job.min_workers), keep_workers_(job.keep_workers), lease_(lease) {}

  // All that it knows beside its settings.
  struct Memory {
    bool has_begun = false;
    absl::Time gathers_until = absl::InfinitePast();
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  void Resume(const Memory& memory) { memory_ = memory; }
  const Memory& memory() const { return memory_; }

  // The cluster is ready for workers.
  void OnReady(absl::Time now) { memory_.gathers_until = now + lease_; }
  // Work was given out, so all that are required are there.
  void OnWork() {
    memory_.has_begun = true;
    memory_.gathers_until = absl::InfinitePast();
  }

  // Whether workers that were there may still be on their way.
  bool IsGathering(absl::Time now) const { return now < memory_.gathers_until; }

  RequiredMembers Required(absl::Time now) const {
    if (!memory_.has_begun || IsGathering(now)) return {min_workers_, "min_workers"};
    return {keep_workers_, "keep_workers"};
  }

 private:
  int min_workers_;
  int keep_workers_;
  absl::Duration lease_;
  Memory memory_;
};

}  // namespace lodestar
