// One or more shards of a small model in one process, for tests.
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
    JobSpec job;
    bool has_averaged = false;   // block 1 is averaged
    bool has_embedding = false;  // the last tensor, a block of its own, is one
    int num_shards = 1;
    Incarnation last_of_others = {};
    int64_t staging_bytes = 1 << 20;
    int64_t max_bytes = 0;              // of each shard
    int64_t system_bytes = 0;           // what the system gives to all shards; 0 means all it has
    Executor* executor = nullptr;       // null: everything runs inline
    ShardObserver* observer = nullptr;  // of all shards
    TraceRecorder* trace = nullptr;     // of all shards
    ShardJournal* journal = nullptr;    // of all shards
  };

  explicit TestCluster(Options options);

  const Layout& layout() const { return layout_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  int num_shards() const { return static_cast<int>(shards_.size()); }
  ParameterShard& shard(int index) { return *shards_[index]; }
  std::unique_ptr<ParameterShard> TakeShard(int index) { return std::move(shards_[index]); }
  ParameterShard& shard_of(uint32_t bucket) { return *shards_[buckets_[bucket].shard]; }

  void LoadInitial();
  // Every element the same.
  void LoadConstant(float value);
  // Workers 1..n, incarnation 1.
  void SetMembers(int num_workers);
  // Roster of workers 1..n with these samples each.
  void OpenRound(int64_t round, const std::vector<int64_t>& samples, double learning_rate = 0.1);
  void Drop(int worker);

  static ContributionKey Key(int worker, int64_t round, int64_t base_version);

  // Begin, fill from the whole model's vector, encoded as the key says, finish. Empty while it
  // waits. What is averaged goes as it is.
  struct Push {
    std::optional<absl::StatusOr<PushOutcome>> outcome;
    bool was_discard = false;
  };
  std::shared_ptr<Push> PushBucket(const ContributionKey& key, uint32_t bucket,
                                   const std::vector<float>& values);
  // All buckets; the outcome of the last, or the first error.
  absl::StatusOr<PushOutcome> PushAll(const ContributionKey& key, const std::vector<float>& values);

  // A whole vector of the model whose elements depend on `tag`.
  std::vector<float> Vector(int tag) const;
  // Where that round begins or newer; waits for nothing.
  absl::StatusOr<PublishedBucket> Read(uint32_t bucket, int64_t round, const ReadView& view = {});
  // Weights of all buckets, each at `version` exactly; waits for nothing.
  absl::StatusOr<std::vector<float>> Weights(int64_t version);

 private:
  const Options options_;
  InlineExecutor inline_executor_;
  Layout layout_;
  std::vector<ElementRange> ranges_;
  std::vector<Bucket> buckets_;
  InProcessNorms norms_;
  int64_t created_bytes_ = 0;  // while system_bytes counts
  std::vector<std::unique_ptr<ParameterShard>> shards_;
};

// Each bucket from the part of the state that has its elements.
absl::Status RestoreFrom(const ShardState& state, ParameterShard& shard, Round round);

// Bits, not values: tells 0 from -0 and holds for NaN.
bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace lodestar::shard
