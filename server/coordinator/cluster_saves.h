// SPDX-License-Identifier: Apache-2.0

// Carries out what the CheckpointManager decides, and what JobEnding decides about the last save.
// Collects the facts for their decisions, puts their verdicts into words, and makes the commands
// for servers and the keeper of checkpoints. Pure. Only the coordinator uses it, and decides when a
// checkpoint may begin: while all servers are there and, unless a comment says otherwise, between
// rounds.
//
// Some functions return only a Status. An error means that the job fails with it now. This happens
// if a server has reported that it cannot go on, and the last save, for which the job still waited,
// is over.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/coordinator/checkpoints/checkpoint_manager.h"
#include "server/coordinator/checkpoints/coordinator_state.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/outbox.h"
#include "server/coordinator/shards/shard_event.h"

namespace lodestar::coordinator {

class ClusterSaves {
 public:
  // Both objects must outlive this one.
  ClusterSaves(ClusterState* state, Outbox* outbox) : state_(*state), outbox_(*outbox) {}

  // Returns the ticket of the checkpoint that will serve the request. Errors: see
  // Coordinator::RequestCheckpoint().
  absl::StatusOr<uint64_t> Request(absl::Time now);
  // Begins a checkpoint if one was requested, or is scheduled before the coming round.
  void BeginIfDue(absl::Time now);
  // Call after the end of the job. Begins a checkpoint for the callers that have requested one.
  void BeginRequested(absl::Time now) { Begin({.ledger = state_.rounds.ledger().state()}, now); }
  // Requests a checkpoint if the journal of the shard has grown beyond its limit. Returns true if a
  // checkpoint was requested.
  bool OnJournalSize(int shard, int64_t bytes, absl::Time now);
  void OnShardAway(int shard, absl::Time now);
  absl::Status OnShardSaved(int shard, const shards::ShardSaved& saved, absl::Time now);
  absl::Status OnPublished(absl::string_view directory,
                           const absl::StatusOr<checkpoints::PublishedCheckpoint>& published,
                           absl::Time now);
  // Ends the checkpoint that is under way, if there is one, and all requests for checkpoints with
  // the error `reason`.
  void GiveUp(const absl::Status& reason);

  // Call if a server process waits for the last save before it exits. The process waits for at most
  // `patience`. Workers get no more work.
  absl::Status BeginLast(absl::string_view reason, absl::Duration patience, absl::Time now);
  // Call while rounds are open. If a process waits to exit or the job stops, begins a checkpoint of
  // the complete rounds, at most one per open round. The process may be killed before the open
  // round ends. The last save follows after the open round. Returns true if a checkpoint was begun.
  bool SaveCompleteRounds(absl::Time now);
  // Call if no try of the last save is made, or none is left. Ends the last save: it has succeeded
  // if the newest checkpoint has everything, and otherwise has failed with `error`.
  absl::Status EndLast(const absl::Status& error);
  // Makes the next try of the last save if it is due, or ends the last save. Returns true if
  // anything has changed.
  absl::StatusOr<bool> AdvanceLast(absl::Time now);
  // Call if a server has been away for long. Ends the last save if a process that waits for it has
  // given up waiting for absent servers.
  absl::Status OnStillAway(int shard, absl::Time now);
  // Returns true if workers have delayed the last save, or the stop of the job, for as long as they
  // may.
  bool IsHeldUp(absl::Time now) const;
  // Returns the reason for which workers are dropped if IsHeldUp().
  std::string HeldUpReason() const;
  // Call if a process waited for the last save, with this `reason`, and a new process has taken its
  // place. The old process then does not count as waiting any more. Returns true if no process
  // waits for the last save any more, so that work is handed out again.
  bool ForgetAsker(absl::string_view reason);
  // Call when the servers begin a new life from JobModel::source(). If that source is a checkpoint,
  // `on_disk` is the state that it has.
  void Restart(const checkpoints::CoordinatorState& on_disk, absl::Time now);
  // Requests an extra checkpoint for changed orders of operators, so that they survive a restart
  // without a journal.
  void OnOrdersChanged(absl::Time now);
  // Call when a server is back. Requests the checkpoint for changed orders again if it was given up
  // because the server was away.
  void OnShardBack(absl::Time now);

 private:
  checkpoints::CheckpointFacts Facts() const;
  void Begin(const checkpoints::CheckpointTry& begun, absl::Time now);
  absl::Status OnFailed(absl::string_view directory, const absl::Status& error, absl::Time now);

  ClusterState& state_;
  Outbox& outbox_;
};

}  // namespace lodestar::coordinator
