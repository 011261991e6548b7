// The data sets of a job, how far each of them is, and which worker has which. Pure; the ledger
// serializes calls.
//
// A set is told by its fingerprint and sizes. Workers with the same data share one cursor. So a
// pass over a set neither repeats nor skips samples, whichever workers take part in it. All workers
// with shared data have one and the same set; --data_partition=own lets a worker bring another. A
// client that tells no fingerprint is taken at its word: its data is not compared with that of
// others.
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

namespace lodestar {

class DataSets {
 public:
  static constexpr size_t kMaxSets = 1 << 16;
  // The most samples of one set, of either kind. No real data has as many.
  static constexpr int64_t kMaxSamples = int64_t{1} << 48;

  // A set that no worker has and that no samples were handed out of does not count: its index may
  // be given to another set. Otherwise an index means the same set for the life of this object.
  using Index = size_t;

  // All that it knows.
  struct Memory {
    std::vector<DataSetState> sets;
    std::map<WorkerId, Index> set_of;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  DataSets() = default;
  explicit DataSets(std::vector<DataSetState> sets) { memory_.sets = std::move(sets); }
  // Requires indices of sets that are there.
  explicit DataSets(Memory memory) : memory_(std::move(memory)) {}
  const Memory& memory() const { return memory_; }

  // The worker of this name has this data from here on. Errors: FailedPrecondition with both
  // fingerprints and sizes, and which worker brought the job's data, if shared data differs from
  // it; InvalidArgument if the data contradicts itself, or is more than kMaxSamples;
  // ResourceExhausted (kMaxSets).
  absl::Status Admit(WorkerId worker, absl::string_view name, const DatasetInfo& data);
  void Release(WorkerId worker) { memory_.set_of.erase(worker); }

  // Requires: admitted, not released.
  Index SetOf(WorkerId worker) const;
  const DataSetState& at(Index set) const { return memory_.sets[set]; }
  // Hands out samples; returns the position of the first in the order of the set.
  int64_t Take(Index set, int64_t num_samples);

  const std::map<WorkerId, Index>& workers() const { return memory_.set_of; }
  // Sets that some worker has, ascending.
  std::vector<Index> Present() const;
  // Returns the tokens of a sample, which are the same for all sets of a model. 0 means that there
  // is no set yet.
  int64_t tokens_per_sample() const;
  // Samples handed out over samples there are, of all sets together that some worker has, or, if
  // none is there, that samples were handed out of; 0 if unknown.
  double Epoch() const;
  // Returns what outlives a restart: the sets that samples were handed out of.
  std::vector<DataSetState> Export() const;

 private:
  bool Counts(Index set) const;
  // `name`: of the worker that has the data.
  absl::Status CheckShared(absl::string_view name, const DatasetInfo& data) const;

  Memory memory_;
};

// Passes over one set; 0 if its size is unknown.
double EpochOf(const DataSetState& set);

}  // namespace lodestar
