// SPDX-License-Identifier: Apache-2.0

// TestCluster is one or more shards of a small model in one process, for tests.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "common/params/bucket_plan.h"
#include "common/params/layout.h"
#include "common/process/trace_recorder.h"
#include "common/runtime/executor.h"
#include "server/shard/parameter_shard.h"
#include "server/shard/testing/in_process_norms.h"

namespace lodestar::shard {

class TestCluster {
 public:
  struct Options {
    job::JobSpec job;
    bool has_averaged = false;   // block 1 is averaged
    bool has_embedding = false;  // the last tensor is an embedding in a block of its own
    int num_shards = 1;
    Incarnation last_of_others = {};
    int64_t staging_bytes = 1 << 20;
    int64_t max_bytes = 0;              // limit of each shard
    int64_t system_bytes = 0;           // bytes that the system gives in all; 0 means no limit
    Executor* executor = nullptr;       // null: everything runs inline
    ShardObserver* observer = nullptr;  // observer of all shards
    process::TraceRecorder* trace = nullptr;  // recorder of all shards
    ShardJournal* journal = nullptr;          // journal of all shards
  };

  explicit TestCluster(Options options);

  const params::Layout& layout() const { return layout_; }
  const std::vector<params::Bucket>& buckets() const { return buckets_; }
  int num_shards() const { return static_cast<int>(shards_.size()); }
  ParameterShard& shard(int index) { return *shards_[index]; }
  std::unique_ptr<ParameterShard> TakeShard(int index) { return std::move(shards_[index]); }
  ParameterShard& shard_of(uint32_t bucket) { return *shards_[buckets_[bucket].shard]; }

  void LoadInitial();
  // Loads weights that all equal `value`.
  void LoadConstant(float value);
  // Sets workers 1..n as members, each with incarnation 1.
  void SetMembers(int num_workers);
  // Opens a round whose roster is workers 1..n with these numbers of samples.
  void OpenRound(int64_t round, const std::vector<int64_t>& samples, double learning_rate = 0.1);
  void Drop(int worker);

  static ContributionKey Key(int worker, int64_t round, int64_t base_version);

  // A Push is the state of one PushBucket() call. PushBucket() begins a bucket, fills it with the
  // bucket's part of `values`, encodes it as the key says, and finishes it. Averaged tensors are
  // not encoded. `outcome` is not set while the push waits.
  struct Push {
    std::optional<absl::StatusOr<PushOutcome>> outcome;
    bool was_discard = false;
  };
  std::shared_ptr<Push> PushBucket(const ContributionKey& key, uint32_t bucket,
                                   const std::vector<float>& values);
  // Pushes all buckets. Returns the outcome of the last bucket, or the first error.
  absl::StatusOr<PushOutcome> PushAll(const ContributionKey& key, const std::vector<float>& values);

  // Returns a vector of the whole model whose elements depend on `tag`.
  std::vector<float> Vector(int tag) const;
  // Returns the weights of a bucket, in a version that includes all rounds before `round`. Does not
  // wait.
  absl::StatusOr<PublishedBucket> Read(uint32_t bucket, int64_t round, const ReadView& view = {});
  // Returns the weights of all buckets, each at exactly `version`. Does not wait.
  absl::StatusOr<std::vector<float>> Weights(int64_t version);

 private:
  const Options options_;
  InlineExecutor inline_executor_;
  params::Layout layout_;
  std::vector<params::ElementRange> ranges_;
  std::vector<params::Bucket> buckets_;
  InProcessNorms norms_;
  int64_t created_bytes_ = 0;  // bytes created, if system_bytes is set
  std::vector<std::unique_ptr<ParameterShard>> shards_;
};

// Restores each bucket from the part of the state that has the bucket's elements.
absl::Status RestoreFrom(const ShardState& state, ParameterShard& shard, Round round);

// Compares bits, not values: 0 differs from -0, and NaN equals the same NaN.
bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace lodestar::shard
