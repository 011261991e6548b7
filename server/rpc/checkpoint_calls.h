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
// `asker` is a server that may ask again; only its last call is answered. 0 means that the caller
// asks only once. Errors: those of Coordinator::LastSaveOutcome(); DeadlineExceeded (after
// `patience`; the text says what is in no checkpoint); Unavailable (the strand has stopped without
// a checkpoint, or the asker has asked again).
void TakeLastCheckpoint(CoordinatorStrand& strand, uint64_t asker, const std::string& reason,
                        absl::Duration patience, CheckpointDone done);

// RolledBack says where the job has gone back to.
struct RolledBack {
  std::string path;  // path of the checkpoint
  Round round;
  int64_t rounds_undone = 0;
};
using RollBackDone = std::function<void(const absl::StatusOr<RolledBack>&)>;

// Rolls the job back: see Coordinator::RollBack(), with its errors. `done` is called once. On
// success it is called when the roll-back is on disk, so that no later process can go on from the
// undone rounds. Errors also: FailedPrecondition (the job has failed or was stopped meanwhile);
// DataLoss (the job has not gone back to a checkpoint of at most `round` rounds); DeadlineExceeded
// (after `patience`); Unavailable (the strand stops meanwhile); those of
// CoordinatorStrand::RunOrder(). After an error of RunOrder() the job may still go back later.
void RollBack(CoordinatorStrand& strand, Round round, const std::string& why,
              absl::Duration patience, RollBackDone done);

}  // namespace lodestar::rpc
