#include "server/coordinator/shown_workers.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <string>

namespace lodestar {
namespace {

absl::Time ShownSince(const MembershipTable& membership, absl::Time now) {
  std::vector<absl::Time> ends;
  for (const auto& [id, record] : membership.workers()) {
    if (!record.is_alive()) ends.push_back(record.ended_at);
  }
  std::sort(ends.begin(), ends.end(), std::greater<>());
  const absl::Time since = now - kEndedShownFor;
  return ends.size() > kMaxEndedShown ? std::max(since, ends[kMaxEndedShown - 1]) : since;
}

}  // namespace

std::vector<WorkerSnapshot> ShownWorkers(const MembershipTable& membership,
                                         const std::map<WorkerId, WorkerDesk>& desks,
                                         const WorkLedger& ledger, const RefusalBook& refusals,
                                         absl::Time now) {
  const int64_t newest = ledger.next_round().value() - 1;
  std::vector<WorkerSnapshot> refused = refusals.Snapshot(now);
  std::set<std::string> refused_names;
  for (const WorkerSnapshot& worker : refused) refused_names.insert(worker.name);
  const absl::Time shown_since = ShownSince(membership, now);
  std::vector<WorkerSnapshot> workers;
  const WorkerDesk none;
  for (const auto& [id, record] : membership.workers()) {
    // Who registered and was refused afterwards has one line, with the refusal.
    const bool is_shown = record.is_alive() ||
                          (record.ended_at >= shown_since && !refused_names.contains(record.name));
    if (!is_shown) continue;
    const auto desk = desks.find(id);
    workers.push_back((desk == desks.end() ? none : desk->second).Snapshot(record, newest, now));
    if (const DataSetState* data = ledger.DataOf(id); data != nullptr) {
      workers.back().data = DataSnapshot{data->claim.own_partition, data->claim.fingerprint,
                                         data->claim.num_train_samples,
                                         data->claim.num_heldout_samples, EpochOf(*data)};
    }
  }
  std::move(refused.begin(), refused.end(), std::back_inserter(workers));
  return workers;
}

}  // namespace lodestar
