// Whether a worker knows of a report that was acknowledged and that these servers lack. A
// coordinator acknowledges only what its journal has, and without a journal each process is another
// life of the servers. So all of their disks have gone back to an older state, or the worker errs.
// Pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/cluster_messages.h"
#include "server/coordinator/cluster_state.h"

namespace lodestar {

// Returns true if `call` tells of such a report. False if another process holds the name, which is
// refused for that.
bool LacksAcknowledged(const ClusterState& state, const RegisterCall& call);

// Returns the alarm about the report of `round` of the worker `name`: after a few others, so many
// that liars cannot drive all other alarms out, one that is the same for all.
std::string LacksReportAlarm(const ClusterState& state, absl::string_view name, Round round);

// Returns Aborted, with the round that the servers are at, and that of the report.
absl::Status LacksReportStatus(const ClusterState& state, Round round);

}  // namespace lodestar
