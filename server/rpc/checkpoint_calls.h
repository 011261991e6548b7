// Asks the coordinator for checkpoints, or to go back to one, and waits for that: for operators,
// and for servers that are about to stop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/runtime/ids.h"
#include "server/rpc/coordinator_strand.h"

namespace lodestar::rpc {

// `done` is called once, from any thread.
using CheckpointDone = std::function<void(const absl::StatusOr<PublishedCheckpoint>&)>;

// Errors: those of Coordinator::RequestCheckpoint(); DeadlineExceeded after `patience`; Unavailable
// if the strand stops meanwhile.
void TakeCheckpoint(CoordinatorStrand& strand, absl::Duration patience, CheckpointDone done);

// Takes the checkpoint after which no worker gets work any more, see Coordinator::BeginLastSave().
// `asker` is a server that may ask again; the last of its calls is answered. 0 means that the
// caller asks only once. Errors: those of Coordinator::LastSaveOutcome(); DeadlineExceeded after
// `patience`, with what is in no checkpoint; Unavailable if the strand has stopped without one, or
// the asker has asked again.
void TakeLastCheckpoint(CoordinatorStrand& strand, uint64_t asker, const std::string& reason,
                        absl::Duration patience, CheckpointDone done);

// RolledBack is what the job has gone back to.
struct RolledBack {
  std::string path;  // of a checkpoint
  Round round;
  int64_t rounds_undone = 0;
};
using RollBackDone = std::function<void(const absl::StatusOr<RolledBack>&)>;

// See Coordinator::RollBack(), with its errors. `done` is called, once, when no later process goes
// on from what was undone. Errors also: FailedPrecondition if the job has failed or was
// stopped over it; DataLoss if it has gone back elsewhere than to a checkpoint of at most `round`
// rounds; DeadlineExceeded after `patience`; Unavailable if the strand stops
// meanwhile, and those of CoordinatorStrand::RunOrder(), also if the job then goes back later.
void RollBack(CoordinatorStrand& strand, Round round, const std::string& why,
              absl::Duration patience, RollBackDone done);

}  // namespace lodestar::rpc
