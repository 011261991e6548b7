// SPDX-License-Identifier: Apache-2.0

// Asks the coordinator for a checkpoint, or to go back to one, and waits for the result. The
// callers are operators and servers that are about to stop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/runtime/ids.h"
#include "server/rpc/coordinator_strand.h"

namespace lodestar::rpc {

// Called once, from any thread.
using CheckpointDone = std::function<void(const absl::StatusOr<checkpoints::PublishedCheckpoint>&)>;

// Takes a checkpoint. Errors: those of Coordinator::RequestCheckpoint(); DeadlineExceeded (after
// `patience`); Unavailable (the strand stops meanwhile).
void TakeCheckpoint(CoordinatorStrand& strand, absl::Duration patience, CheckpointDone done);

// Takes the checkpoint after which no worker gets work any more: see Coordinator::BeginLastSave().
// `asker` is the number of a server that may ask again: its later call replaces its earlier one. 0
// means that the caller asks only once. Errors:
// - DeadlineExceeded: `patience` is over; the text says what is in no checkpoint
// - Unavailable: the strand has stopped without a checkpoint, or a later call has replaced this one
// - those of Coordinator::LastSaveOutcome()
void TakeLastCheckpoint(CoordinatorStrand& strand, uint64_t asker, const std::string& reason,
                        absl::Duration patience, CheckpointDone done);

// RolledBack says where the job has gone back to.
struct RolledBack {
  std::string path;  // path of the checkpoint
  Round round;
  int64_t rounds_undone = 0;
};
using RollBackDone = std::function<void(const absl::StatusOr<RolledBack>&)>;

// Rolls the job back: see Coordinator::RollBack(). Calls `done` once. On success, the rollback is
// then on disk, so that no later process can go on from the undone rounds. Errors:
// - FailedPrecondition: the job has failed or was stopped meanwhile
// - DataLoss: the job has not gone back to a checkpoint of at most `round` rounds
// - DeadlineExceeded: `patience` is over
// - Unavailable: the strand has stopped meanwhile
// - those of Coordinator::RollBack()
// - those of CoordinatorStrand::RunOrder(); after such an error the job may still go back
void RollBack(CoordinatorStrand& strand, Round round, const std::string& why,
              absl::Duration patience, RollBackDone done);

}  // namespace lodestar::rpc
