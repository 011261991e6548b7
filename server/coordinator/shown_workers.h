// Which workers the status shows: those who live, and for a while those whose life has ended and
// those who were refused.
#pragma once

#include <map>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/coordinator/refusal_book.h"
#include "server/coordinator/work_ledger.h"
#include "server/coordinator/worker_desk.h"
#include "server/membership/membership_table.h"

namespace lodestar {

// Of those whose life has ended: for this long, and the latest of them.
inline constexpr absl::Duration kEndedShownFor = absl::Hours(1);
inline constexpr size_t kMaxEndedShown = 32;

// By id, the refused last.
std::vector<WorkerSnapshot> ShownWorkers(const MembershipTable& membership,
                                         const std::map<WorkerId, WorkerDesk>& desks,
                                         const WorkLedger& ledger, const RefusalBook& refusals,
                                         absl::Time now);

}  // namespace lodestar
