// SPDX-License-Identifier: Apache-2.0

#include "common/plan/shard_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/messages/contribution.h"
#include "common/runtime/bytes_text.h"

namespace lodestar::plan {
namespace {

// The memory for arriving contributions is the size of the shard's weights, divided by this number.
// More memory would not be faster: contributions would only wait there until they are added.
constexpr int64_t kStagingShare = 4;
// Minimum number of slots for arriving contributions: two workers with two streams each can fill
// one slot per stream.
constexpr int64_t kMinSlots = 4;

int NumGradientStateVectors(job::OptimizerKind kind) {
  switch (kind) {
    case job::OptimizerKind::kSgd:
    case job::OptimizerKind::kReduce:
      return 0;
    case job::OptimizerKind::kMomentum:
    case job::OptimizerKind::kNesterov:
      return 1;
    case job::OptimizerKind::kAdamW:
      return 2;
  }
  return 0;
}

std::string Part(const char* name, int64_t bytes) {
  return bytes == 0 ? "" : absl::StrCat(", ", name, " ", BytesText(bytes));
}

}  // namespace

std::string ShardMemory::Describe() const {
  return absl::StrCat(BytesText(steady()), ": weights ", BytesText(weights),
                      Part("optimizer state", optimizer_state), Part("sums of contributions", sums),
                      Part("weights as workers have them", shadow),
                      Part("contributions in transit", staging));
}

int NumStagingSlots(int64_t num_elements, int64_t slot_elements, int64_t max_bytes) {
  const int64_t slot_bytes = slot_elements * static_cast<int64_t>(sizeof(float));
  const int64_t wanted = std::max(num_elements / kStagingShare / slot_elements, kMinSlots);
  return static_cast<int>(std::clamp<int64_t>(max_bytes / slot_bytes, 2, wanted));
}

int NumServerStateVectors(const job::JobSpec& job) {
  const messages::ContributionKind kind = messages::RoundContributionKind(job);
  if (kind == messages::ContributionKind::kGradient)
    return NumGradientStateVectors(job.optimizer.kind);
  // If workers' windows differ in length, an outer step is made in parts. It needs three vectors:
  // the momentum, the part of the step that is made, and the weights where the step began.
  constexpr int kDelayed = 3;
  const bool is_delayed = job.mode == job::Mode::kAsyncLocalSgd;
  switch (job.outer_optimizer) {
    case job::OuterOptimizerKind::kAverage:
      return is_delayed && (kind == messages::ContributionKind::kPseudoGradient ||
                            job::IsAnchoredAtServer(job))
                 ? kDelayed
                 : 0;
    case job::OuterOptimizerKind::kSgd:
      return is_delayed ? kDelayed : 0;
    case job::OuterOptimizerKind::kNesterov:
      return is_delayed ? kDelayed : 1;
    case job::OuterOptimizerKind::kEasgd:
      return 0;
    case job::OuterOptimizerKind::kAdam:
      return 2;
  }
  return 0;
}

ShardMemory EstimateShardMemory(const job::JobSpec& job, int64_t num_elements,
                                int64_t staging_bytes) {
  ShardMemory memory;
  memory.weights = num_elements * static_cast<int64_t>(sizeof(float));
  memory.optimizer_state = memory.weights * NumServerStateVectors(job);
  // Without rosters there are no sums: contributions are applied from the slot where they arrived.
  if (job::HasRosters(job)) memory.sums = memory.weights;
  // The second vector holds, for each element, the total weight of its senders or the sum of the
  // contributions' directions.
  if (job::DividesBySenders(job) || job::AveragesDirections(job)) memory.sums *= 2;
  // A robust mean holds all contributions of a round at once. The estimate counts min_workers of
  // them. If more workers join, the shard needs more memory.
  if (job.robust_mean.is_robust()) memory.sums *= job.min_workers;
  if (job.pull_encoding != params::Encoding::kFp32) {
    // The shadow is a copy of the weights as the workers have them. It has one vector for the copy
    // and one for its newest changes. Without error feedback it also has one for the last weights.
    memory.shadow = memory.weights * (job.error_feedback ? 2 : 3);
  }
  const int64_t slot_bytes = std::min(job.bucket_bytes, memory.weights);
  const int64_t slot_elements = slot_bytes / static_cast<int64_t>(sizeof(float));
  memory.staging = slot_bytes * NumStagingSlots(num_elements, slot_elements, staging_bytes);
  memory.copies = memory.checkpoint();
  return memory;
}

absl::StatusOr<std::string> CheckShardMemory(const ShardMemory& needed,
                                             const machine::HostMemory& host) {
  if (host.total_bytes == 0) return "";
  const std::string has = absl::StrCat(host.limited_by, " has ", BytesText(host.available_bytes),
                                       " available of ", BytesText(host.total_bytes));
  if (needed.steady() > host.available_bytes) {
    const int64_t num_servers =
        // Number of servers that would be needed in place of this server.
        needed.steady() / std::max<int64_t>(1, host.available_bytes) + 1;
    // The code is not ResourceExhausted, which would be retried: the job is too large for this
    // server.
    return absl::FailedPreconditionError(absl::StrCat(
        "this server needs ", needed.Describe(), "; ", has,
        ". Free memory on this machine, use an optimizer with less state, divide the shard among "
        "at least ",
        num_servers, " such servers (--shard=I/K), or allow more with --memory_limit"));
  }
  if (needed.peak() <= host.available_bytes) return "";
  return absl::StrCat("memory may run out while a checkpoint is written: this server needs ",
                      needed.Describe(), ", and up to ", BytesText(needed.copies), " for copies; ",
                      has, ". Divide the job among more servers (--shard=I/K)");
}

}  // namespace lodestar::plan
