// Carries out what the CheckpointManager decides, and JobEnding for the last save: gathers their
// facts, words their verdicts, and tells servers and the disk. Pure; for the coordinator, which
// calls it while it may: when all servers are there, between rounds, and says so.
//
// Errors of calls that return a Status alone: the job fails with it now, because a server that
// cannot go on had told so before, and the last save for it is over.
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

namespace lodestar {

class ClusterSaves {
 public:
  // Both outlive this.
  ClusterSaves(ClusterState* state, Outbox* outbox) : state_(*state), outbox_(*outbox) {}

  // Returns the ticket of the checkpoint that will serve the request. Errors: see
  // Coordinator::RequestCheckpoint().
  absl::StatusOr<uint64_t> Request(absl::Time now);
  // No round is open: begins one that is scheduled for the coming round or was asked for.
  void BeginIfDue(absl::Time now);
  // The job is over. Begins one for the callers that have asked.
  void BeginRequested(absl::Time now) { Begin({.ledger = state_.rounds.ledger().state()}, now); }
  // Asks for one where a journal has grown too long. Returns whether it has.
  bool OnJournalSize(int shard, int64_t bytes, absl::Time now);
  void OnShardAway(int shard, absl::Time now);
  absl::Status OnShardSaved(int shard, const ShardSaved& saved, absl::Time now);
  absl::Status OnPublished(absl::string_view directory,
                           const absl::StatusOr<PublishedCheckpoint>& published, absl::Time now);
  // Ends the one under way, if any, and what was asked for with this error.
  void GiveUp(const absl::Status& reason);

  // A process waits for the last save, at the most for `patience`: no more work is given out.
  absl::Status BeginLast(absl::string_view reason, absl::Duration patience, absl::Time now);
  // Call while rounds are open. If some process waits to stop, begins a checkpoint of the rounds
  // that are complete, once for each open round: the process may be killed before that round comes.
  // The last save follows once it has come. Returns whether a checkpoint was begun.
  bool SaveCompleteRounds(absl::Time now);
  // There is no try (any more); what is on disk already is good enough if nothing came after it.
  absl::Status EndLast(const absl::Status& error);
  // Carries out the tries. Returns whether anything has changed.
  absl::StatusOr<bool> AdvanceLast(absl::Time now);
  // A server has been away for long. That ends a last save that some process waits for.
  absl::Status OnStillAway(int shard, absl::Time now);
  // Whether workers have held it up, or a stop, for as long as they may.
  bool IsHeldUp(absl::Time now) const;
  // Says why workers that hold it up are dropped.
  std::string HeldUpReason() const;
  // A process has taken over what the one before it has written down, and waits for nothing any
  // more. Returns whether anything has changed.
  bool ForgetAsker(absl::string_view reason);
  // The servers begin a new life from the source of the JobModel. `on_disk`: what the checkpoint
  // has, if it is one.
  void Restart(const CoordinatorState& on_disk, absl::Time now);
  // Takes a checkpoint out of turn, so that a process without a journal goes by the orders as well.
  void OnOrdersChanged(absl::Time now);
  // A server is back; the checkpoint for changed orders may have been given up meanwhile.
  void OnShardBack(absl::Time now);

 private:
  CheckpointFacts Facts() const;
  void Begin(const CheckpointTry& begun, absl::Time now);
  absl::Status OnFailed(absl::string_view directory, const absl::Status& error, absl::Time now);

  ClusterState& state_;
  Outbox& outbox_;
};

}  // namespace lodestar
