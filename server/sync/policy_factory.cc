// SPDX-License-Identifier: Apache-2.0

#include "server/sync/policy_factory.h"

#include "server/sync/asynchronous.h"
#include "server/sync/roster_rounds.h"

namespace lodestar::sync {
namespace {

// Grace period of asynchronous local SGD, as a share of a member's round time. Round times of
// workers of equal speed differ by up to this share. So do round times of workers whose windows are
// shortened to fit their speeds. See docs/howto/unequal_workers.md.
constexpr double kGraceOfLocalSteps = 0.2;

int QuorumOf(const job::JobSpec& job) { return job.mode == job::Mode::kSync ? job.quorum : 0; }

}  // namespace

std::unique_ptr<const BucketPolicy> MakeBucketPolicy(const job::JobSpec& job) {
  if (job::HasRosters(job)) return std::make_unique<RosterBuckets>(QuorumOf(job), job.fragments);
  if (job.mode == job::Mode::kAsyncLocalSgd) {
    return std::make_unique<AsynchronousLocalBuckets>(
        AsynchronousLocalBuckets::Config{.quorum = job.quorum, .max_staleness = job.max_staleness});
  }
  return std::make_unique<AsynchronousBuckets>();
}

std::unique_ptr<const ClusterPolicy> MakeClusterPolicy(const job::JobSpec& job) {
  if (job::HasRosters(job)) return std::make_unique<RosterCluster>(QuorumOf(job));
  return std::make_unique<AsynchronousCluster>(AsynchronousCluster::Config{
      .max_rounds_ahead = job.max_rounds_ahead,
      .grace = job.mode == job::Mode::kAsyncLocalSgd ? kGraceOfLocalSteps : 0.0});
}

bool ClipsMean(const job::JobSpec& job) {
  return job::HasRosters(job) && !job::HasLocalSteps(job) && job.clip_norm > 0.0;
}

}  // namespace lodestar::sync
