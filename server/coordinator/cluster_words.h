// What can be said of a cluster: to operators, to workers that wait, and to the log. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/coordinator/checkpoints/last_save.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/faults/fault_policy.h"
#include "server/coordinator/faults/quarantine.h"
#include "server/coordinator/membership/membership.h"
#include "server/coordinator/model/model_refusal.h"
#include "server/coordinator/rounds/round_scheduler.h"
#include "server/coordinator/rounds/site_order.h"
#include "server/coordinator/rounds/worker_assignment.h"
#include "server/coordinator/shards/shard_fleet.h"
#include "server/coordinator/stragglers/straggler_detector.h"

namespace lodestar {

enum class Ages : uint8_t { kShown, kLeftOut };

// Says what is waited for, in which round, and for how long. Empty means that nothing is waited
// for.
std::string WaitingFor(const ClusterState& state, absl::Time now, Ages ages = Ages::kShown);
// Names the journals that cannot be written at present. Empty means that there are none. Without
// ages the text has no reasons either.
std::string WaitingForJournals(const ClusterState& state, Ages ages = Ages::kShown);
// The servers that are not there, or not yet what the others are; empty if all serve.
std::string WaitingForServers(const ClusterState& state, absl::Time now, Ages ages = Ages::kShown);
// Why this worker, which has asked for work, has none; without ages, so that its log has it once.
std::string PendingReason(const ClusterState& state, WorkerId worker, absl::Time now);
// Returns what has been done to the learning rate before, such as " (after 2 rollbacks, with the
// learning rate times 0.4 by operators besides)". Empty means that nothing has.
std::string LearningRateHistoryText(const FaultPolicy::Memory& faults);
// "bucket 3, element 7: NaN; 2 of 3 times in a row that it may send NaN or Inf (--nonfinite_limit)"
std::string NotFiniteReason(const ClusterState& state, WorkerId worker, absl::string_view text);
// "worker 'a' is shut out: an operator has evicted it: ...; psctl readmit a lets it in again"
std::string ShutOutText(const Quarantine::Entry& entry);
// "it was given round 7 5m0.2s ago and has not reported it; such a round usually takes it 1.2s"
// or "of bucket 3, 65540 of 1048576 bytes have come to shard 0 in 6s, and others wait for its
// space: a push has to come at a pace at which it is whole within --round_timeout=15s" or "for 1h
// others have waited for space of shard 0 that it keeps (of bucket 3, ...): ..."
std::string StallText(const ClusterState& state, const Stall& stall, absl::Time now);
// Returns the alarm that the worker is dropped for the stall. `what` is its StallText().
std::string HeldUpText(const ClusterState& state, const Stall& stall, absl::string_view what);
// How long what is waited for now may last before the log is told.
absl::Duration WaitPatience(const ClusterState& state);
// Whether the orders of earlier lives of the servers are known, which others would be lost to.
// Error: Unavailable: the same call again.
absl::Status CheckKnowsOrders(const ClusterState& state, absl::Time now);
// Returns OK only if state.is_ready(). Otherwise the error says what is waited for, or why it is in
// vain.
absl::Status CheckReady(const ClusterState& state, absl::Time now);
// Whether all servers are there and serve the weights. Errors: those of CheckReady(), and
// Unavailable with what is waited for.
absl::Status CheckAllServing(const ClusterState& state, absl::Time now);
// Whether workers may be answered at all. Errors: Unavailable before journals have been compared.
absl::Status CheckCompared(const ClusterState& state, absl::Time now);

// "training", "waiting_for_workers", ...
absl::string_view StateName(const ClusterState& state);
ClusterSnapshot SnapshotOf(const ClusterState& state, absl::Time now);

// Requires: is_paused().
std::string PauseText(const ClusterState& state);
// "rounds 200 to 216 are in no checkpoint; ..."; empty if everything is.
std::string UnsavedText(const ClusterState& state);

// "an operator sent the job back to ...", once that has brought it to a checkpoint of `reached`
// rounds. Not set means that there was no checkpoint.
std::string SentBackText(const Setback::Order& order, std::optional<int64_t> reached);

// "rounds 52 to 111 were lost when ..."; empty if none are, or all were done again.
std::string LostText(const ClusterState& state);

// How a job came to its end.
struct JobOutcome {
  std::string text;         // "stopped after 7 of 20 rounds", "complete after all 20 rounds"
  LastSave::Outcome saved;  // errors: those of Coordinator::LastSaveOutcome()
  std::string lost;         // see LostText()
};
// Not set before the job is over and no last checkpoint is tried any more; workers may still have
// to leave. Error: FailedPrecondition (it has failed).
std::optional<absl::StatusOr<JobOutcome>> EndingOf(const ClusterState& state);
// If this process ends now, whatever the job still waits for. `saved`: errors as above.
JobOutcome CutOffEndingOf(const ClusterState& state);

// Says of the server of a shard what has become of it: "was started anew".
std::string ShardLossText(const ClusterState& state, const ShardLoss& loss);
// Returns OK if the verdict is not that the server is refused. Errors: those of
// Coordinator::OnShardAttached().
absl::Status AttachRefusal(const ClusterState& state, const Attachment& attachment,
                           AttachVerdict::Kind kind);
// Returns Aborted: see Coordinator::CheckNotFollowed().
absl::Status FollowedStatus();

// Says which journal of the coordinator ends where, and what is later.
std::string JournalLossReason(const JournalFacts& facts, const JournalLoss& loss);
// Returns the alarm: what is lost, and what the operator can do.
std::string JournalLossText(const JournalFacts& facts, const JournalLoss& loss);
// Returns FailedPrecondition: --accept_loss names another round.
absl::Status AcceptedOtherLoss(const JournalFacts& facts, const JournalLoss& loss);

// Returns OK if there is no refusal. Error: Unavailable: the same call again.
absl::Status MemberRefusalStatus(const ClusterState& state,
                                 const std::optional<MemberRefusal>& refusal);
// Returns OK if there is no refusal. Errors: Unavailable: the same call again; FailedPrecondition
// if the client knows other encodings, or is to go by the job's layout and does not;
// InvalidArgument, or that of PlanShards(), for what the client brings or proposes.
absl::Status ModelRefusalStatus(const ClusterState& state,
                                const std::optional<ModelRefusal>& refusal);
std::string MemberAlarmText(const ClusterState& state, const MemberAlarm& alarm);
// Returns Aborted, with the round that the servers are at, and that of the report that they lack.
absl::Status LacksReportStatus(const ClusterState& state, Round round);

// Returns OK if the report is not refused. Error: InvalidArgument.
absl::Status ReportRefusal(const RoundReport& report, const ReportVerdict& verdict);
// See Coordinator::OrderOutcome().
std::optional<absl::StatusOr<SiteOutcome>> OrderOutcomeOf(const ClusterState& state,
                                                          uint64_t number);

// Why BeginLastSave() is called for a server.
std::string ReasonOfStop(int shard);

}  // namespace lodestar
