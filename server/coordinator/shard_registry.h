// Which server holds which shard, and whether it is ready. Pure data.
//
//   kMissing --Attach--> kAttached --Assigned--> kLoading --Loaded--> kServing
//      ^                     |                       |                   |
//      +------- Lose --------+-----------------------+-------------------+
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar {

class ShardRegistry {
 public:
  enum class State : uint8_t { kMissing, kAttached, kLoading, kServing };
  struct Entry {
    State state = State::kMissing;
    uint64_t instance_id = 0;
    std::string address;
    absl::Time since;  // of the state
  };

  ShardRegistry(int num_shards, absl::Time now);

  // Errors: InvalidArgument (numbers), AlreadyExists (another instance holds the shard).
  absl::Status Attach(int shard, int num_shards, uint64_t instance_id, absl::string_view address,
                      absl::Time now);
  // False if that instance does not hold the shard.
  bool Lose(int shard, uint64_t instance_id, absl::Time now);
  void MarkLoading(absl::Time now);
  void MarkServing(int shard, absl::Time now);

  bool all_attached() const;  // or further
  bool all_serving() const;
  // "shard 1 (missing for 3s) and shard 2 (...)": those not yet in `wanted` or further. Without
  // `now`, without the times.
  std::string Lacking(State wanted, std::optional<absl::Time> now) const;
  bool Has(int shard) const { return shard >= 0 && shard < static_cast<int>(entries_.size()); }
  const std::vector<Entry>& entries() const { return entries_; }
  static absl::string_view StateName(State state);

 private:
  bool AllAtLeast(State wanted) const;
  std::vector<Entry> entries_;
};

}  // namespace lodestar
