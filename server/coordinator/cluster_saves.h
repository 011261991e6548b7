// SPDX-License-Identifier: Apache-2.0

// Carries out the decisions of the CheckpointManager, and those of JobEnding about the last save.
// Collects the facts for these decisions. Makes the messages about them, and the commands for
// servers and for the keeper of checkpoints. Pure.
//
// Only the coordinator uses this class. It begins checkpoints only while all servers are there and
// no round is open. Comments name the exceptions.
//
// If a function that returns a Status returns an error, the job fails now with this error. This
// happens if the job has waited only for the last save since a server reported that it cannot go
// on.
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
  // Begins a checkpoint of the complete rounds if a process waits to exit or the job stops. The
  // process may be killed before the open round ends. Begins at most one such checkpoint for each
  // open round. After the open round, the last save follows. Returns true if a checkpoint was
  // begun. Call while rounds are open.
  bool SaveCompleteRounds(absl::Time now);
  // Ends the last save. Call if no try is possible, or if all tries have failed. If the newest
  // checkpoint has everything, the last save has succeeded. Otherwise it has failed with `error`.
  absl::Status EndLast(const absl::Status& error);
  // Makes the next try of the last save if it is due, or ends the last save. Returns true if
  // anything has changed.
  absl::StatusOr<bool> AdvanceLast(absl::Time now);
  // Call if a server has been away for long. If a process waits for the last save and no longer
  // waits for absent servers, ends the last save.
  absl::Status OnStillAway(int shard, absl::Time now);
  // Returns true if the last save, or the stop of the job, has waited for workers for the maximum
  // time.
  bool IsHeldUp(absl::Time now) const;
  // Returns the reason for which workers are dropped if IsHeldUp().
  std::string HeldUpReason() const;
  // Call if a process that waited for the last save was replaced by a new process. `reason` is the
  // reason that the old process gave. The old process no longer counts as waiting. If no other
  // process waits, returns true, and work is handed out again.
  bool ForgetAsker(absl::string_view reason);
  // Call when the servers begin a new life with the weights of JobModel::source(). If these come
  // from a checkpoint, `on_disk` is the state in that checkpoint.
  void Restart(const checkpoints::CoordinatorState& on_disk, absl::Time now);
  // Requests a checkpoint after operators have changed their orders. Without a journal, only a
  // checkpoint keeps the orders over a restart.
  void OnOrdersChanged(absl::Time now);
  // Call when a server is back. If the newest checkpoint has other orders or another learning rate
  // than the job now has, requests a checkpoint again.
  void OnShardBack(absl::Time now);

 private:
  checkpoints::CheckpointFacts Facts() const;
  void Begin(const checkpoints::CheckpointTry& begun, absl::Time now);
  absl::Status OnFailed(absl::string_view directory, const absl::Status& error, absl::Time now);

  ClusterState& state_;
  Outbox& outbox_;
};

}  // namespace lodestar::coordinator
