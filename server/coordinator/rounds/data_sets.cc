// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/rounds/data_sets.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/runtime/check.h"

namespace lodestar::rounds {
namespace {

std::optional<DataRefusal> CheckSound(const messages::DatasetInfo& data) {
  using Kind = DataRefusal::Kind;
  if (std::max(data.num_train_samples, data.num_heldout_samples) > DataSets::kMaxSamples) {
    return DataRefusal{.kind = Kind::kTooLarge, .allowed = DataSets::kMaxSamples};
  }
  const bool is_sound = data.num_train_samples >= 0 && data.num_heldout_samples >= 0 &&
                        data.tokens_per_sample >= 0 &&
                        (data.fingerprint.empty() || data.num_train_samples > 0);
  if (is_sound) return std::nullopt;
  return DataRefusal{.kind = Kind::kNotSound};
}

bool HaveSameData(const messages::DatasetInfo& a, const messages::DatasetInfo& b) {
  return a.fingerprint == b.fingerprint && a.num_train_samples == b.num_train_samples &&
         a.num_heldout_samples == b.num_heldout_samples &&
         a.tokens_per_sample == b.tokens_per_sample;
}

// Returns true if two workers must have the same data, and their data can be compared. If neither
// worker sends a fingerprint, known sizes are compared. So workers with shared data share one
// cursor.
bool AreCompared(const messages::DatasetInfo& a, const messages::DatasetInfo& b) {
  if (a.own_partition || b.own_partition) return false;
  if (!a.fingerprint.empty() || !b.fingerprint.empty()) {
    return !a.fingerprint.empty() && !b.fingerprint.empty();
  }
  return a.num_train_samples > 0 && b.num_train_samples > 0;
}

}  // namespace

std::optional<DataRefusal> DataSets::Admit(WorkerId worker, absl::string_view name,
                                           const messages::DatasetInfo& data) {
  if (std::optional<DataRefusal> refusal = CheckSound(data)) return refusal;
  Release(worker);
  if (std::optional<DataRefusal> refusal = CheckShared(data)) return refusal;
  checkpoints::DataSetState admitted = {data, 0, std::string(name)};
  if (data.own_partition && data.fingerprint.empty()) {
    admitted.info.fingerprint = absl::StrCat("worker ", worker.value());
  }
  Index set = 0;
  while (set < memory_.sets.size() && !HaveSameData(memory_.sets[set].info, admitted.info)) ++set;
  if (set == memory_.sets.size()) {
    set = 0;
    while (set < memory_.sets.size() && Counts(set)) ++set;
    if (set == kMaxSets) {
      return DataRefusal{.kind = DataRefusal::Kind::kTooManySets, .allowed = kMaxSets};
    }
    if (set == memory_.sets.size()) memory_.sets.emplace_back();
    memory_.sets[set] = std::move(admitted);
  } else {
    // The data that a worker brings with --data_partition=own may be the shared data.
    memory_.sets[set].info.own_partition &= data.own_partition;
  }
  memory_.set_of[worker] = set;
  return std::nullopt;
}

std::optional<DataRefusal> DataSets::CheckShared(const messages::DatasetInfo& data) const {
  for (Index set = 0; set < memory_.sets.size(); ++set) {
    const checkpoints::DataSetState& job = memory_.sets[set];
    if (!Counts(set) || !AreCompared(job.info, data) || HaveSameData(job.info, data)) continue;
    return DataRefusal{.kind = DataRefusal::Kind::kOtherData, .job = job};
  }
  return std::nullopt;
}

DataSets::Index DataSets::SetOf(WorkerId worker) const {
  auto entry = memory_.set_of.find(worker);
  LODESTAR_CHECK(entry != memory_.set_of.end())
      << "worker " << worker.value() << " has no data set";
  return entry->second;
}

int64_t DataSets::Take(Index set, int64_t num_samples) {
  const int64_t first = memory_.sets[set].next_sample;
  memory_.sets[set].next_sample += num_samples;
  return first;
}

std::vector<DataSets::Index> DataSets::Present() const {
  std::set<Index> present;
  for (const auto& [worker, set] : memory_.set_of) present.insert(set);
  return {present.begin(), present.end()};
}

int64_t DataSets::tokens_per_sample() const {
  for (Index set = 0; set < memory_.sets.size(); ++set) {
    if (Counts(set)) return memory_.sets[set].info.tokens_per_sample;
  }
  return 0;
}

double DataSets::Epoch() const {
  double handed_out = 0.0;
  double samples = 0.0;
  const std::vector<Index> present = Present();
  for (Index set = 0; set < memory_.sets.size(); ++set) {
    // Counts only the sets that workers have. If no worker has a set, counts all sets that samples
    // were handed out of.
    const bool is_there =
        present.empty() ? Counts(set) : std::binary_search(present.begin(), present.end(), set);
    if (!is_there || memory_.sets[set].info.num_train_samples == 0) continue;
    handed_out += static_cast<double>(memory_.sets[set].next_sample);
    samples += static_cast<double>(memory_.sets[set].info.num_train_samples);
  }
  return samples > 0.0 ? handed_out / samples : 0.0;
}

std::vector<checkpoints::DataSetState> DataSets::Export() const {
  std::vector<checkpoints::DataSetState> used;
  std::copy_if(memory_.sets.begin(), memory_.sets.end(), std::back_inserter(used),
               [](const checkpoints::DataSetState& set) { return set.next_sample > 0; });
  return used;
}

bool DataSets::Counts(Index set) const {
  return memory_.sets[set].next_sample > 0 ||
         std::any_of(memory_.set_of.begin(), memory_.set_of.end(),
                     [set](const auto& entry) { return entry.second == set; });
}

double EpochOf(const checkpoints::DataSetState& set) {
  if (set.info.num_train_samples == 0) return 0.0;
  return static_cast<double>(set.next_sample) / static_cast<double>(set.info.num_train_samples);
}

}  // namespace lodestar::rounds
