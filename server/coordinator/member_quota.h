// How many members there must be before anybody gets work. Pure.
#pragma once

#include "absl/time/time.h"
#include "common/job_spec.h"
#include "server/sync/cluster_policy.h"

namespace lodestar {

// --min_workers is for the start of this process. From the first work on --keep_workers counts, but
// that those who were there get a lease's time to come back when the cluster starts anew.
class MemberQuota {
 public:
  MemberQuota(const JobSpec& job, absl::Duration lease)
      : min_workers_(job.min_workers), keep_workers_(job.keep_workers), lease_(lease) {}

  // The cluster is ready for workers.
  void OnReady(absl::Time now) { gathers_until_ = now + lease_; }
  // Work was given out, so that all who are required are there.
  void OnWork() {
    has_begun_ = true;
    gathers_until_ = absl::InfinitePast();
  }

  // Whether those who were there may still be on their way.
  bool IsGathering(absl::Time now) const { return now < gathers_until_; }

  RequiredMembers Required(absl::Time now) const {
    if (!has_begun_ || IsGathering(now)) return {min_workers_, "min_workers"};
    return {keep_workers_, "keep_workers"};
  }

 private:
  int min_workers_;
  int keep_workers_;
  absl::Duration lease_;
  bool has_begun_ = false;
  absl::Time gathers_until_ = absl::InfinitePast();
};

}  // namespace lodestar
