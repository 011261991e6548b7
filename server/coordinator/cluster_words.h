// SPDX-License-Identifier: Apache-2.0

// Makes the messages about the state of a cluster for operators, for workers that wait, and for the
// log. verdict_words.h has the messages about single decisions of its parts. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/runtime/ids.h"
#include "server/coordinator/checkpoints/last_save.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/rounds/site_order.h"
#include "server/coordinator/stragglers/straggler_detector.h"

namespace lodestar::coordinator {

// Names of states that StateName() returns.
inline constexpr absl::string_view kTraining = "training";
inline constexpr absl::string_view kPaused = "paused";

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
// Says what the worker of the stall does not do. Examples:
// - "it got round 7 5m ago and has not delivered it; such a round usually takes it 1.2s"
// - "shard 0 has received 65540 of 1048576 bytes of bucket 3 in 6s, and other workers wait for the
//   memory that it fills; a contribution must be complete within --round_timeout=15s"
// - "its unfinished contributions fill the memory for contributions on shard 0, and other workers
//   have waited for that memory for 1h (...); ..."
std::string StallText(const ClusterState& state, const stragglers::Stall& stall, absl::Time now);
// Returns the text of the alarm that a worker is dropped because of the stall. `what` is the
// StallText() of that stall.
std::string HeldUpText(const ClusterState& state, const stragglers::Stall& stall,
                       absl::string_view what);
// Returns the time at which this member is dropped if it makes no progress until then.
// InfiniteFuture() means that it is not dropped.
absl::Time DropTime(const ClusterState& state, absl::Span<const stragglers::Stall> stalls,
                    WorkerId worker, absl::Time now);
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
// Requires: is_paused().
std::string PauseText(const ClusterState& state);
// Returns a text such as "rounds 200 to 216 are in no checkpoint; ...". Empty means that a
// checkpoint has everything.
std::string UnsavedText(const ClusterState& state);
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

// See Coordinator::OrderOutcome().
std::optional<absl::StatusOr<rounds::SiteOutcome>> OrderOutcomeOf(const ClusterState& state,
                                                                  uint64_t number);

}  // namespace lodestar::coordinator
