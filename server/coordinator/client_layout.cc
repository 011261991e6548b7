#include "server/coordinator/client_layout.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/params/bucket_plan.h"
#include "common/params/shard_plan.h"
#include "common/plan/shard_memory.h"
#include "common/runtime/status_macros.h"

namespace lodestar {
namespace {

constexpr size_t kMaxTensors = 1 << 16;
// Names, shapes and marks. Half of the largest message, and the buckets are a quarter of it.
constexpr int64_t kMaxLayoutBytes = 4 << 20;
constexpr int64_t kMaxBucketsOfAMessage = 1 << 16;

// An upper bound of what the wire form of a tensor takes.
int64_t BytesOf(const TensorSpec& tensor) {
  constexpr int64_t kMarks = 24;
  constexpr int64_t kDimension = 8;
  return static_cast<int64_t>(tensor.name.size()) + kMarks +
         kDimension * static_cast<int64_t>(tensor.shape.size());
}

absl::Status Refuse(absl::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrCat("the layout that this client brings is refused: ", reason));
}

}  // namespace

absl::Status CheckClientLayout(const CoordinatorConfig& config, const JobSpec& job,
                               const Layout& layout) {
  if (layout.tensors().size() > kMaxTensors) {
    return Refuse(
        absl::StrCat("it has ", layout.tensors().size(), " tensors, allowed are ", kMaxTensors));
  }
  int64_t bytes = 0;
  for (const TensorSpec& tensor : layout.tensors()) bytes += BytesOf(tensor);
  if (bytes > kMaxLayoutBytes) {
    return Refuse(absl::StrCat("names and shapes of its tensors take ", bytes,
                               " bytes, allowed are ", kMaxLayoutBytes));
  }
  ASSIGN_OR_RETURN(const std::vector<ElementRange> ranges, PlanShards(layout, config.num_shards));
  const ElementRange largest = *std::max_element(
      ranges.begin(), ranges.end(),
      [](const ElementRange& a, const ElementRange& b) { return a.size() < b.size(); });
  const auto fits = CheckShardMemory(EstimateShardMemory(job, largest.size(), config.staging_bytes),
                                     config.memory);
  if (!fits.ok()) {
    return Refuse(absl::StrCat("it has ", layout.num_elements(), " elements, ", largest.size(),
                               " for one server: ", fits.status().message()));
  }
  const absl::StatusOr<std::vector<Bucket>> buckets = PlanBuckets(layout, ranges, job.bucket_bytes);
  if (!buckets.ok()) return Refuse(buckets.status().message());
  if (static_cast<int64_t>(buckets->size()) <= kMaxBucketsOfAMessage) return absl::OkStatus();
  return Refuse(absl::StrCat("it would have ", buckets->size(), " buckets, allowed are ",
                             kMaxBucketsOfAMessage, "; give the server a larger --bucket_bytes"));
}

}  // namespace lodestar
