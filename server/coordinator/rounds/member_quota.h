// SPDX-License-Identifier: Apache-2.0

// Says how many members are required before any member gets work. Pure.
#pragma once

#include "absl/time/time.h"
#include "common/job/job_spec.h"
#include "server/sync/cluster_policy.h"

namespace lodestar::rounds {

// --min_workers members are required until the first work is handed out. Later, --keep_workers
// members are enough. If the cluster starts again, --min_workers members are required for one more
// lease, so that the workers have time to come back.
class MemberQuota {
 public:
  MemberQuota(const job::JobSpec& job, absl::Duration lease)
      : min_workers_(job.min_workers), keep_workers_(job.keep_workers), lease_(lease) {}

  // What this object knows beside its settings.
  struct Memory {
    bool has_begun = false;
    absl::Time gathers_until = absl::InfinitePast();
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  void Resume(const Memory& memory) { memory_ = memory; }
  const Memory& memory() const { return memory_; }

  // Records that the cluster is ready for workers, and begins the lease in which they can come
  // back.
  void OnReady(absl::Time now) { memory_.gathers_until = now + lease_; }
  // Records that work was handed out, so enough members were there.
  void OnWork() {
    memory_.has_begun = true;
    memory_.gathers_until = absl::InfinitePast();
  }

  // Returns true if workers that were members before may still be coming back.
  bool IsGathering(absl::Time now) const { return now < memory_.gathers_until; }

  sync::RequiredMembers Required(absl::Time now) const {
    if (!memory_.has_begun || IsGathering(now)) return {min_workers_, "min_workers"};
    return {keep_workers_, "keep_workers"};
  }

 private:
  int min_workers_;
  int keep_workers_;
  absl::Duration lease_;
  Memory memory_;
};

}  // namespace lodestar::rounds
