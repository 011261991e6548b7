// The checkpoints of a cluster: when one is begun, where, and what follows from how it ends. There
// are those that are due or asked for, and the last one, at the end of the job or before servers
// stop. Of the last one it also knows which processes wait for it, for how long, and what it has
// come to. Pure; for the coordinator, which calls it while it may: when all servers are there,
// between rounds, and says so.
//
// Errors of calls that return a Status alone: the job fails with it now, because a server that
// cannot go on had told so before, and the last save for it is over.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/coordinator/checkpoint_task.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/coordinator_state.h"
#include "server/coordinator/outbox.h"
#include "server/coordinator/shard_event.h"

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
  void BeginRequested(absl::Time now) { Begin(state_.config.checkpoint_dir, now); }
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
  bool is_last_under_way() const {
    return state_.last_save.is_begun() && !state_.last_save.outcome().has_value();
  }
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
  // The servers begin a new life from state.source. `on_disk`: what the checkpoint has, if it is
  // one.
  void Restart(const CoordinatorState& on_disk, absl::Time now);
  // Takes a checkpoint out of turn, so that a process without a journal goes by the orders as well.
  void OnOrdersChanged(absl::Time now);
  // A server is back; the checkpoint for changed orders may have been given up meanwhile.
  void OnShardBack(absl::Time now);

 private:
  void Begin(absl::string_view folder, absl::Time now) {
    Begin(folder, state_.ledger.state(), now);
  }
  // `ledger`: as it was when the round began that the checkpoint is of.
  void Begin(absl::string_view folder, const LedgerState& ledger, absl::Time now);
  // Returns the ledger without the open round. Not set means that it is not known, or not to be
  // saved by itself.
  std::optional<LedgerState> CompleteRounds() const;
  // Whether the open round usually comes before a checkpoint would be written.
  bool IsOpenRoundSooner(absl::Time now) const;
  absl::Status OnFailed(absl::string_view directory, const absl::Status& error, absl::Time now);
  // Whether what is on disk already serves the callers that asked for a checkpoint.
  bool ServeRequestsWithLast();
  // Whether a checkpoint of this state has all that will be acknowledged until work is handed out
  // again.
  bool HasEverything(const CoordinatorState& saved) const;
  bool HoldsLast() const {
    return state_.checkpoints.HoldsLast(state_.ledger.state(), state_.orders());
  }
  void ForgetLast();

  ClusterState& state_;
  Outbox& outbox_;
  std::optional<int64_t> saved_before_round_;  // of SaveCompleteRounds(): the last open round
  std::string early_directory_;                // that it has begun last; empty if none
  // Bytes of the journals that are too long, by shard, when a checkpoint was asked for.
  std::map<int, int64_t> long_journals_;
  bool has_everything_ = false;  // The checkpoint that is being published.
};

}  // namespace lodestar
