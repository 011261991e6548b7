// SPDX-License-Identifier: Apache-2.0

// Makes the messages about the state of a cluster for operators, for workers that wait, and for the
// log. Pure.
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
#include "server/coordinator/model/exchange_tuning.h"
#include "server/coordinator/model/model_refusal.h"
#include "server/coordinator/rounds/data_sets.h"
#include "server/coordinator/rounds/round_scheduler.h"
#include "server/coordinator/rounds/site_order.h"
#include "server/coordinator/rounds/worker_assignment.h"
#include "server/coordinator/shards/shard_fleet.h"
#include "server/coordinator/stragglers/straggler_detector.h"

namespace lodestar::coordinator {

enum class Ages : uint8_t { kShown, kLeftOut };

// Says what the cluster waits for, in which round, and for how long. Empty means that the cluster
// waits for nothing.
std::string WaitingFor(const ClusterState& state, absl::Time now, Ages ages = Ages::kShown);
// Names the journals that cannot be written at present. Empty means that all can be written.
// Ages::kLeftOut leaves out the reasons as well.
std::string WaitingForJournals(const ClusterState& state, Ages ages = Ages::kShown);
// Names the servers that have not attached or are away. Empty means that there are none.
std::string WaitingForServers(const ClusterState& state, absl::Time now, Ages ages = Ages::kShown);
// Says why this worker has no work although it has asked for work. The text has no durations, so it
// stays the same, and the worker logs it only once.
std::string PendingReason(const ClusterState& state, WorkerId worker, absl::Time now);
// Says how rollbacks and operators have changed the learning rate, such as " (after 2 rollbacks,
// with the learning rate times 0.4 by operators)". Empty means that it was not changed.
std::string LearningRateHistoryText(const faults::FaultPolicy::Memory& faults);
// Returns the reason for dropping a worker that has sent NaN or Inf. `text` is the begin of the
// reason. Example: "bucket 3, element 7: NaN; 2 of 3 times in a row that --nonfinite_limit lets a
// worker send NaN or Inf".
std::string NotFiniteReason(const ClusterState& state, WorkerId worker, absl::string_view text);
// Returns a text such as "worker 'a' is shut out: an operator has evicted it: ...; psctl readmit a
// lets it in again".
std::string ShutOutText(const faults::Quarantine::Entry& entry);
// Says what the worker of the stall does not do. Examples:
// - "it has had round 7 for 5m and has not reported it; such a round usually takes it 1.2s"
// - "of bucket 3, 65540 of 1048576 bytes have come to shard 0 in 6s, and others wait for its space:
//   a push has to come at a pace at which it is whole within --round_timeout=15s"
// - "for 1h others have waited for space of shard 0 that it keeps (of bucket 3, ...): ..."
std::string StallText(const ClusterState& state, const stragglers::Stall& stall, absl::Time now);
// Returns the text of the alarm that a worker is dropped because of the stall. `what` is the
// StallText() of that stall.
std::string HeldUpText(const ClusterState& state, const stragglers::Stall& stall,
                       absl::string_view what);
// Returns how long the present wait must last before the log reports it.
absl::Duration WaitPatience(const ClusterState& state);
// Checks that this process knows the orders that operators gave in earlier lives of the servers.
// Before that, a new order must wait, because the earlier orders would later replace it. Error:
// Unavailable (make the same call again).
absl::Status CheckKnowsOrders(const ClusterState& state, absl::Time now);
// Returns OK only if state.is_ready(). Otherwise the error says what the cluster waits for, or why
// it will never be ready.
absl::Status CheckReady(const ClusterState& state, absl::Time now);
// Checks that all servers are there and serve the weights. Errors: those of CheckReady();
// Unavailable (says what the cluster waits for).
absl::Status CheckAllServing(const ClusterState& state, absl::Time now);
// Checks that workers may get answers. Errors: Unavailable (the journals have not been compared
// yet).
absl::Status CheckCompared(const ClusterState& state, absl::Time now);

// Returns the name of the cluster's state, such as "training" or "waiting_for_workers".
absl::string_view StateName(const ClusterState& state);
ClusterSnapshot SnapshotOf(const ClusterState& state, absl::Time now);

// Says which exchange settings the job has chosen and why, or what the trial of settings still
// waits for. Empty means that the operator has given all settings.
std::string ExchangeText(const ClusterState& state);
// Says which settings the trial has chosen, with the measurements and the estimates that they are
// based on.
std::string ExchangeChoiceText(const model::ExchangeTuning::Choice& choice);
// Requires: is_paused().
std::string PauseText(const ClusterState& state);
// Returns a text such as "rounds 200 to 216 are in no checkpoint; ...". Empty means that a
// checkpoint has everything.
std::string UnsavedText(const ClusterState& state);

// Returns a text about a rollback, such as "an operator sent the job back to ...". `reached` is the
// number of rounds of the checkpoint that was restored. Not set means that there was no checkpoint.
std::string SentBackText(const faults::Setback::Order& order, std::optional<int64_t> reached);

// Returns a text such as "rounds 52 to 111 were lost when ...". Empty means that no rounds were
// lost, or that all of them were done again.
std::string LostText(const ClusterState& state);

// Says how a job has ended.
struct JobOutcome {
  std::string text;  // "stopped after 7 of 20 rounds", "complete after all 20 rounds"
  checkpoints::LastSave::Outcome saved;  // errors: those of Coordinator::LastSaveOutcome()
  std::string lost;                      // see LostText()
};
// Returns how the job ended. Not set before the job is over and the last save has ended. Workers
// may still be there then. Error: FailedPrecondition (the job has failed).
std::optional<absl::StatusOr<JobOutcome>> EndingOf(const ClusterState& state);
// Returns the outcome of the job if this process exits now without waiting any longer. For errors
// in JobOutcome::saved, see Coordinator::LastSaveOutcome().
JobOutcome CutOffEndingOf(const ClusterState& state);

// Says what happened to the server of a shard, such as "was started anew".
std::string ShardLossText(const ClusterState& state, const shards::ShardLoss& loss);
// Returns the error for a server that is refused with `kind`. If `kind` is no refusal, returns OK.
// Errors: those of Coordinator::OnShardAttached().
absl::Status AttachRefusal(const ClusterState& state, const shards::Attachment& attachment,
                           shards::AttachVerdict::Kind kind);
// Returns the Aborted error that Coordinator::CheckNotFollowed() returns.
absl::Status FollowedStatus();

// Says where the coordinator's journal ends, and which shards or checkpoints know of later rounds
// or records.
std::string JournalLossReason(const shards::JournalFacts& facts, const shards::JournalLoss& loss);
// Returns the text of the alarm about a loss: what is lost, and what the operator can do.
std::string JournalLossText(const shards::JournalFacts& facts, const shards::JournalLoss& loss);
// Returns FailedPrecondition, with the message that --accept_loss names another round than that of
// the loss.
absl::Status AcceptedOtherLoss(const shards::JournalFacts& facts, const shards::JournalLoss& loss);

// Returns OK if there is no refusal. Error: Unavailable (make the same call again).
absl::Status MemberRefusalStatus(const ClusterState& state,
                                 const std::optional<membership::MemberRefusal>& refusal);
// Returns OK if there is no refusal. Errors:
// - Unavailable: The client must make the same call again.
// - FailedPrecondition: The client does not know an encoding of the job, or its layout is not the
//   job's.
// - InvalidArgument, or an error of PlanShards(): The client's model or settings are wrong.
absl::Status ModelRefusalStatus(const ClusterState& state,
                                const std::optional<model::ModelRefusal>& refusal);
// Returns OK if there is no refusal of the data set that the worker `name` brings. Errors:
// - FailedPrecondition: Shared data differs from the job's data. The message has both fingerprints
//   and sizes, and the worker that brought the job's data.
// - InvalidArgument: The sizes contradict each other or are too large.
// - ResourceExhausted: The job has used too many data sets.
absl::Status DataRefusalStatus(absl::string_view name, const messages::DatasetInfo& data,
                               const std::optional<rounds::DataRefusal>& refusal);
std::string MemberAlarmText(const ClusterState& state, const membership::MemberAlarm& alarm);
// Returns Aborted, for a worker with an acknowledged report of `round` that the servers lack. The
// message names `round` and the servers' next round.
absl::Status LacksReportStatus(const ClusterState& state, Round round);

// Returns OK if the report is not refused. Error: InvalidArgument.
absl::Status ReportRefusal(const messages::RoundReport& report,
                           const rounds::ReportVerdict& verdict);
// See Coordinator::OrderOutcome().
std::optional<absl::StatusOr<rounds::SiteOutcome>> OrderOutcomeOf(const ClusterState& state,
                                                                  uint64_t number);

// Returns the reason to pass to BeginLastSave() if the server of `shard` is about to stop.
std::string ReasonOfStop(int shard);

}  // namespace lodestar::coordinator
