// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/model/client_layout.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/params/bucket_plan.h"
#include "common/params/shard_plan.h"
#include "common/plan/shard_memory.h"

namespace lodestar::model {
namespace {

constexpr int64_t kMaxTensors = 1 << 16;
// Maximum number of bytes of the names, shapes and fixed fields of a layout: half of the largest
// message. Up to kMaxBucketsOfAMessage buckets take another quarter.
constexpr int64_t kMaxLayoutBytes = 4 << 20;
constexpr int64_t kMaxBucketsOfAMessage = 1 << 16;

// Returns an upper bound of the bytes that a tensor takes in a message.
int64_t BytesOf(const params::TensorSpec& tensor) {
  constexpr int64_t kMarks = 24;
  constexpr int64_t kDimension = 8;
  return static_cast<int64_t>(tensor.name.size()) + kMarks +
         kDimension * static_cast<int64_t>(tensor.shape.size());
}

}  // namespace

std::optional<ModelRefusal> CheckClientLayout(const ServerRoom& room, const job::JobSpec& job,
                                              const params::Layout& layout) {
  using Kind = ModelRefusal::Kind;
  const auto num_tensors = static_cast<int64_t>(layout.tensors().size());
  if (num_tensors > kMaxTensors) {
    return ModelRefusal{.kind = Kind::kTensors, .present = num_tensors, .allowed = kMaxTensors};
  }
  int64_t bytes = 0;
  for (const params::TensorSpec& tensor : layout.tensors()) bytes += BytesOf(tensor);
  if (bytes > kMaxLayoutBytes) {
    return ModelRefusal{.kind = Kind::kNames, .present = bytes, .allowed = kMaxLayoutBytes};
  }
  const absl::StatusOr<std::vector<params::ElementRange>> ranges =
      params::PlanShards(layout, room.num_shards);
  if (!ranges.ok()) return ModelRefusal{.kind = Kind::kShards, .cause = ranges.status()};
  const params::ElementRange largest =
      *std::max_element(ranges->begin(), ranges->end(),
                        [](const params::ElementRange& a, const params::ElementRange& b) {
                          return a.size() < b.size();
                        });
  const auto fits = plan::CheckShardMemory(
      plan::EstimateShardMemory(job, largest.size(), room.staging_bytes), room.memory);
  if (!fits.ok()) {
    return ModelRefusal{.kind = Kind::kMemory,
                        .present = layout.num_elements(),
                        .largest_shard = largest.size(),
                        .cause = fits.status()};
  }
  const absl::StatusOr<std::vector<params::Bucket>> buckets =
      params::PlanBuckets(layout, *ranges, job.bucket_bytes);
  if (!buckets.ok()) return ModelRefusal{.kind = Kind::kCut, .cause = buckets.status()};
  const auto num_buckets = static_cast<int64_t>(buckets->size());
  if (num_buckets <= kMaxBucketsOfAMessage) return std::nullopt;
  return ModelRefusal{
      .kind = Kind::kBuckets, .present = num_buckets, .allowed = kMaxBucketsOfAMessage};
}

}  // namespace lodestar::model
