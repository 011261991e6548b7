// SPDX-License-Identifier: Apache-2.0

// Makes the messages about single decisions of the coordinator's parts, such as refusals, losses
// and choices. cluster_words.h has the messages about the state of the cluster. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/faults/fault_policy.h"
#include "server/coordinator/faults/quarantine.h"
#include "server/coordinator/membership/membership.h"
#include "server/coordinator/model/exchange_tuning.h"
#include "server/coordinator/model/model_refusal.h"
#include "server/coordinator/rounds/data_sets.h"
#include "server/coordinator/rounds/round_scheduler.h"
#include "server/coordinator/shards/shard_fleet.h"

namespace lodestar::coordinator {

// Says how rollbacks and operators have changed the learning rate, such as " (after 2 rollbacks,
// after operators multiplied the learning rate by 0.4)". Empty means that it was not changed.
std::string LearningRateHistoryText(const faults::FaultPolicy::Memory& faults);
// Returns the reason for dropping a worker that has sent NaN or Inf. `text` is the begin of the
// reason. Example: "bucket 3, element 7: NaN; this worker has sent NaN or Inf 2 times in a row
// (--nonfinite_limit=3)".
std::string NotFiniteReason(const ClusterState& state, WorkerId worker, absl::string_view text);
// Returns a text such as "worker 'a' is shut out: an operator has evicted this worker: ...; psctl
// readmit a lets it join again".
std::string ShutOutText(const faults::Quarantine::Entry& entry);
// Says which settings the trial has chosen, with the measurements and the estimates that they are
// based on.
std::string ExchangeChoiceText(const model::ExchangeTuning::Choice& choice);
// Returns a text about a rollback, such as "an operator sent the job back to ...". `reached` is the
// number of rounds of the checkpoint that was restored. Not set means that there was no checkpoint.
std::string SentBackText(const faults::Setback::Order& order, std::optional<int64_t> reached);
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
// Returns the reason to pass to BeginLastSave() if the server of `shard` is about to stop.
std::string ReasonOfStop(int shard);

}  // namespace lodestar::coordinator
