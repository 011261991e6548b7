// SPDX-License-Identifier: Apache-2.0

// Holds the data sets of a job: how far training has read each of them, and which worker has which
// set. Pure: the ledger serializes calls.
//
// - A set is identified by its fingerprint and sizes.
// - Workers with the same data share one cursor. So a pass over their set neither repeats nor skips
//   samples, even if workers come and go.
// - All workers with shared data must have the same set. With --data_partition=own, a worker may
//   bring another set.
// - If neither of two workers sends a fingerprint, only the sizes of their data are compared.
// - If only one of them sends a fingerprint, nothing is compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/coordinator/checkpoints/coordinator_state.h"

namespace lodestar::rounds {

// Why the job refuses the data set of a worker.
struct DataRefusal {
  enum class Kind : uint8_t {
    kTooLarge,     // The set has more than `allowed` samples.
    kNotSound,     // The set has no training samples, or a negative size.
    kTooManySets,  // The job has used `allowed` sets.
    kOtherData,    // The job has other shared data: see `job`.
  };
  Kind kind = Kind::kNotSound;
  int64_t allowed = 0;
  checkpoints::DataSetState job = {};  // the job's shared data, for kOtherData
  friend bool operator==(const DataRefusal&, const DataRefusal&) = default;
};

class DataSets {
 public:
  static constexpr size_t kMaxSets = 1 << 16;
  // Maximum number of training samples of a set, and maximum number of its held-out samples. No
  // real set has more.
  static constexpr int64_t kMaxSamples = int64_t{1} << 48;

  // The index of a set. It may be used for another set if no worker has this set and no samples
  // were handed out of it. Otherwise it does not change.
  using Index = size_t;

  // The whole state of this object.
  struct Memory {
    std::vector<checkpoints::DataSetState> sets;
    std::map<WorkerId, Index> set_of;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  DataSets() = default;
  explicit DataSets(std::vector<checkpoints::DataSetState> sets) { memory_.sets = std::move(sets); }
  // Requires: each index in memory.set_of is the index of a set in memory.sets.
  explicit DataSets(Memory memory) : memory_(std::move(memory)) {}
  const Memory& memory() const { return memory_; }

  // Records that the worker `worker`, named `name`, has this data from now on. Returns why the data
  // is refused, or nothing.
  std::optional<DataRefusal> Admit(WorkerId worker, absl::string_view name,
                                   const messages::DatasetInfo& data);
  void Release(WorkerId worker) { memory_.set_of.erase(worker); }

  // Returns the set of the worker. Requires: the worker was admitted and not released since.
  Index SetOf(WorkerId worker) const;
  const checkpoints::DataSetState& at(Index set) const { return memory_.sets[set]; }
  // Hands out the next samples of the set. Returns the position of the first of them in the order
  // of the set.
  int64_t Take(Index set, int64_t num_samples);

  const std::map<WorkerId, Index>& workers() const { return memory_.set_of; }
  // Returns the sets that at least one worker has, ascending.
  std::vector<Index> Present() const;
  // Returns the number of tokens of a sample. It is the same for all sets of a model. 0 means that
  // there is no set yet.
  int64_t tokens_per_sample() const;
  // Returns the number of samples handed out so far, divided by the number of samples of the sets.
  // Counts only the sets that workers have. If there are no workers, counts all sets that samples
  // were handed out of. 0 means not known.
  double Epoch() const;
  // Returns the sets that samples were handed out of. Only these sets survive a restart.
  std::vector<checkpoints::DataSetState> Export() const;

 private:
  bool Counts(Index set) const;
  // Checks that shared data is the job's data, see Admit().
  std::optional<DataRefusal> CheckShared(const messages::DatasetInfo& data) const;

  Memory memory_;
};

// Returns how many times the samples of the set were handed out so far. 0 means that the size of
// the set is not known.
double EpochOf(const checkpoints::DataSetState& set);

}  // namespace lodestar::rounds
