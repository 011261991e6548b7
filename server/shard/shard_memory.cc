#include "server/shard/shard_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/bytes_text.h"
#include "server/optimizer/optimizer_factory.h"
#include "server/shard/staging_pool.h"
#include "server/sync/policy_factory.h"

namespace lodestar {
namespace {

std::string Part(const char* name, int64_t bytes) {
  return bytes == 0 ? "" : absl::StrCat(", ", name, " ", BytesText(bytes));
}

}  // namespace

std::string ShardMemory::Describe() const {
  return absl::StrCat(BytesText(steady()), ": weights ", BytesText(weights),
                      Part("optimizer state", optimizer_state), Part("sums", sums),
                      Part("shadow of the weights", shadow), Part("staging", staging));
}

ShardMemory EstimateShardMemory(const JobSpec& job, int64_t num_elements, int64_t staging_bytes) {
  ShardMemory memory;
  memory.weights = num_elements * static_cast<int64_t>(sizeof(float));
  memory.optimizer_state = memory.weights * MakeServerOptimizer(job)->num_state_vectors();
  // Without rosters a contribution is applied from where it arrived.
  if (MakeBucketPolicy(job)->uses_rosters()) memory.sums = memory.weights;
  // Who sent an element, or in which direction, too.
  if (DividesBySenders(job) || AveragesDirections(job)) memory.sums *= 2;
  // All of a round at once; of more workers than the job begins with, more.
  if (job.robust_mean.is_robust()) memory.sums *= job.min_workers;
  if (job.pull_encoding != Encoding::kFp32) {
    // The shadow, its newest changes, and the last weights where nothing is carried over.
    memory.shadow = memory.weights * (job.error_feedback ? 2 : 3);
  }
  const int64_t slot_bytes = std::min(job.bucket_bytes, memory.weights);
  const int64_t slot_elements = slot_bytes / static_cast<int64_t>(sizeof(float));
  memory.staging = slot_bytes * NumStagingSlots(num_elements, slot_elements, staging_bytes);
  memory.copies = memory.checkpoint();
  return memory;
}

absl::StatusOr<std::string> CheckShardMemory(const ShardMemory& needed, const HostMemory& host) {
  if (host.total_bytes == 0) return "";
  const std::string has = absl::StrCat(host.limited_by, " has ", BytesText(host.available_bytes),
                                       " available of ", BytesText(host.total_bytes));
  if (needed.steady() > host.available_bytes) {
    // Not a matter of time, as a full disk may be: the job is too large for this server.
    return absl::FailedPreconditionError(absl::StrCat(
        "this server needs ", needed.Describe(), "; ", has,
        "; spread the job over more servers (--shard=I/K), take an optimizer with less state, or "
        "say with --memory_limit that it may take more"));
  }
  if (needed.peak() <= host.available_bytes) return "";
  return absl::StrCat("memory may run out while a checkpoint is written: this server needs ",
                      needed.Describe(), ", and for copies up to ", BytesText(needed.copies), "; ",
                      has, "; spread the job over more servers (--shard=I/K)");
}

}  // namespace lodestar
