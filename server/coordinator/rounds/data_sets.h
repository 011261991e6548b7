// SPDX-License-Identifier: Apache-2.0

// Holds the data sets of a job: how far training has read each of them, and which worker has which
// set. Pure: the ledger serializes calls.
//
// A set is identified by its fingerprint and sizes. Workers with the same data share one cursor, so
// that a pass over a set neither repeats nor skips samples, whichever workers take part. All
// workers with shared data must have the same set. --data_partition=own lets a worker bring another
// set. If neither of two clients sends a fingerprint, only the sizes of their data are compared. If
// one of the two sends a fingerprint, nothing is compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/coordinator/checkpoints/coordinator_state.h"

namespace lodestar::rounds {

class DataSets {
 public:
  static constexpr size_t kMaxSets = 1 << 16;
  // Maximum number of training samples of one set, and of its held-out samples. No real set has
  // more.
  static constexpr int64_t kMaxSamples = int64_t{1} << 48;

  // The index of a set. If no worker has the set and no samples were handed out of it, another set
  // may get its index. Otherwise an index means the same set for the life of this object.
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

  // Records that the worker `worker`, named `name`, has this data from now on. Errors:
  // FailedPrecondition (shared data differs from the job's data; the message has both fingerprints
  // and sizes, and the worker that brought the job's data); InvalidArgument (the sizes contradict
  // each other or exceed kMaxSamples); ResourceExhausted (there are kMaxSets sets).
  absl::Status Admit(WorkerId worker, absl::string_view name, const messages::DatasetInfo& data);
  void Release(WorkerId worker) { memory_.set_of.erase(worker); }

  // Requires: the worker was admitted, and was not released since.
  Index SetOf(WorkerId worker) const;
  const checkpoints::DataSetState& at(Index set) const { return memory_.sets[set]; }
  // Hands out samples. Returns the position of the first sample in the order of the set.
  int64_t Take(Index set, int64_t num_samples);

  const std::map<WorkerId, Index>& workers() const { return memory_.set_of; }
  // Returns the sets that at least one worker has, ascending.
  std::vector<Index> Present() const;
  // Returns the number of tokens of a sample, which is the same for all sets of a model. 0 means
  // that there is no set yet.
  int64_t tokens_per_sample() const;
  // Returns the number of samples handed out, divided by the number of samples of the sets. Counts
  // the sets that workers have or, if there are no workers, the sets that samples were handed out
  // of. 0 means not known.
  double Epoch() const;
  // Returns the sets that samples were handed out of. Only these sets survive a restart.
  std::vector<checkpoints::DataSetState> Export() const;

 private:
  bool Counts(Index set) const;
  // Checks that shared data does not differ from the job's data, see Admit(). `name` is the name of
  // the worker that has the data.
  absl::Status CheckShared(absl::string_view name, const messages::DatasetInfo& data) const;

  Memory memory_;
};

// Returns the number of passes over the set so far. 0 means that the size of the set is not known.
double EpochOf(const checkpoints::DataSetState& set);

}  // namespace lodestar::rounds
