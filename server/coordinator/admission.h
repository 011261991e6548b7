// Checks whether a caller may come into the job as it stands. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "common/params/encoding.h"
#include "server/coordinator/cluster_state.h"

namespace lodestar {

// Error: FailedPrecondition: the client does not know the encodings of the job.
absl::Status CheckEncodings(const JobSpec& job, const std::vector<Encoding::Kind>& known);
// Whether the layout that the client brings is the job's. Errors: InvalidArgument;
// FailedPrecondition if it would go by the job's, and has other tensors.
absl::Status CheckOffered(const ClusterState& state, const RegisterCall& call);
// Checks that the members are not as many yet as a round takes contributions at most, where a round
// has such a limit. A worker that has registered and not joined takes no room. Error: Unavailable.
absl::Status CheckRoom(const ClusterState& state, absl::string_view name);
// Number of names of one certificate that may live at the same time before any of them has
// completed a round. Each completed round adds one.
inline constexpr int64_t kNamesPerCertificate = 16;
// Checks that the certificate of this caller may have one more name in the job. A job that waits
// for more workers allows as many names as it waits for. A name that has completed a round is
// always let in. Error: Unavailable, naming the certificate, its names and how many are allowed.
absl::Status CheckMoreNames(const ClusterState& state, const RegisterCall& call);
// Checks that this worker, which is about to join, does not rest: see StragglerDetector::RestOf().
// The others go on meanwhile; if they are too few for that, no worker rests. Error: Unavailable,
// saying how long.
absl::Status CheckRest(const ClusterState& state, WorkerId worker, absl::Time now);
// Error: FailedPrecondition.
absl::Status CheckLayoutHash(const ClusterState& state, absl::string_view layout_hash);
// Checks that the caller does not rest because it was dropped when it did not supply the weights
// that others waited for. Error: Unavailable, because the others come first.
absl::Status CheckMayClaimSupply(const ClusterState& state, const RegisterCall& call,
                                 absl::Time now);

// Returns true if the worker knows of a report that was acknowledged and that these servers lack. A
// coordinator acknowledges only what its journal has, and without a journal each process is another
// life of the servers. So all disks have gone back to an older state, or the worker errs. False if
// another process holds the name, which is refused for that.
bool LacksAcknowledged(const ClusterState& state, const RegisterCall& call);
// Returns true if the worker has contributed to a job whose servers these are not, and these have
// found their checkpoint folder empty: it may be the wrong one.
bool KnowsFormerStart(const ClusterState& state, const RegisterCall& call);
std::string EmptyFolderAlarm(const ClusterState& state, const RegisterCall& call);
// Returns true if the worker has contributed to servers that this run does not go on from, as far
// as the checkpoint can tell. The worker may belong to another job at the same address.
bool IsOfOtherServers(const ClusterState& state, const RegisterCall& call);
// Returns the alarm about such a worker. After a few others, it is one that is the same for all.
std::string OtherServersAlarm(const ClusterState& state, const RegisterCall& call);
// The subject of that alarm, which ends with the life of the worker `name`.
std::string OtherServersSubject(absl::string_view name);

// Returns the alarm about the report of `round` of the worker `name`: after a few others, so many
// that liars cannot drive all other alarms out, one that is the same for all.
std::string LacksReportAlarm(const ClusterState& state, absl::string_view name, Round round);
// Returns Aborted, with the round that the servers are at, and that of the report.
absl::Status LacksReportStatus(const ClusterState& state, Round round);

}  // namespace lodestar
