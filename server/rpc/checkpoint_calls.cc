// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/checkpoint_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"

namespace lodestar::rpc {
namespace {

using Occasion = CoordinatorStrand::Occasion;
using Outcome = std::optional<absl::StatusOr<checkpoints::PublishedCheckpoint>>;

// Returns the delivery of the outcome. If there is no outcome yet, returns null for kChange, and
// the delivery of an error for the other occasions.
CoordinatorStrand::Delivery Deliver(const CheckpointDone& done, const Outcome& outcome,
                                    Occasion occasion, const std::string& unfinished) {
  const auto finish = [done](const absl::StatusOr<checkpoints::PublishedCheckpoint>& answer) {
    return [done, answer](const absl::Status& kept) { done(kept.ok() ? answer : kept); };
  };
  if (outcome.has_value()) return finish(*outcome);
  switch (occasion) {
    case Occasion::kChange:
      return nullptr;
    case Occasion::kPatienceOver:
      return finish(absl::DeadlineExceededError(unfinished));
    case Occasion::kReplaced:
      return finish(
          absl::UnavailableError("a newer call of the same server has replaced this one"));
    case Occasion::kStopping:
      break;
  }
  return finish(absl::UnavailableError("the coordinator is stopping"));
}

// Returns the checkpoint that the job has gone back to. `rounds_done` is the number of rounds
// before the rollback. Errors: DataLoss (the job has not gone back to a checkpoint of at most
// `round` rounds).
absl::StatusOr<RolledBack> WhereItIsBack(const coordinator::Coordinator& coordinator, Round round,
                                         int64_t rounds_done, absl::Time now) {
  const std::optional<model::ResumeSnapshot> resumed = coordinator.Snapshot(now).resumed;
  if (!resumed.has_value()) {
    return absl::DataLossError(
        absl::StrCat("no checkpoint of round ", round.value(),
                     " or earlier was left, so the job has begun again at round 0. Stop the job, "
                     "and start the server with --resume=PATH of a checkpoint"));
  }
  if (resumed->round > round) {
    return absl::DataLossError(absl::StrCat(
        "the job continues from ", resumed->path, ", of round ", resumed->round.value(),
        ", but the order was for at most round ", round.value(),
        ". Stop the job, and start the server with --resume=PATH of an older checkpoint"));
  }
  return RolledBack{resumed->path, resumed->round,
                    std::max<int64_t>(0, rounds_done - resumed->round.value())};
}

}  // namespace

void TakeCheckpoint(CoordinatorStrand& strand, absl::Duration patience, CheckpointDone done) {
  const absl::StatusOr<uint64_t> ticket =
      strand.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
        return coordinator.RequestCheckpoint(now);
      });
  if (!ticket.ok()) return done(ticket.status());
  strand.Await(0, patience,
               [ticket = *ticket, done](coordinator::Coordinator& coordinator, absl::Time,
                                        Occasion occasion) {
                 return Deliver(
                     done, coordinator.CheckpointOutcome(ticket), occasion,
                     "the checkpoint is not finished yet; psctl status shows it when it is");
               });
}

void TakeLastCheckpoint(CoordinatorStrand& strand, uint64_t asker, const std::string& reason,
                        absl::Duration patience, CheckpointDone done) {
  // The save gets what is left of `patience` since the first attempt.
  strand.Await(
      asker, patience,
      [=, until = absl::InfiniteFuture(), begun_in = uint64_t{0}](
          coordinator::Coordinator& coordinator, absl::Time now, Occasion occasion) mutable {
        const bool is_first = until == absl::InfiniteFuture();
        // Begins the save at the first attempt. If a later attempt finds that the coordinator has
        // no such save, there are two cases:
        // - The servers have gone back to a checkpoint, which drops saves. The save is begun again.
        // - Another process has replaced the server that asked. The save is not begun again.
        const uint64_t life = coordinator.server_incarnation();
        if (occasion == Occasion::kChange &&
            (is_first || (life != begun_in && !coordinator.has_begun_last_save()))) {
          if (is_first) until = now + patience;
          begun_in = life;
          coordinator.BeginLastSave(reason, until - now, now);
        }
        return Deliver(
            done, coordinator.LastSaveOutcome(), occasion,
            absl::StrCat(coordinator.Unsaved(),
                         ": the last checkpoint was not finished within --stop_timeout"));
      });
}

void RollBack(CoordinatorStrand& strand, Round round, const std::string& why,
              absl::Duration patience, RollBackDone done) {
  struct Begun {
    uint64_t life = 0;  // incarnation of the servers that ends
    int64_t rounds_done = 0;
  };
  const auto await_return = [&strand, round, patience, done](const absl::StatusOr<Begun>& begun) {
    if (!begun.ok()) return done(begun.status());
    strand.Await(
        0, patience,
        [=, begun = *begun](coordinator::Coordinator& coordinator, absl::Time now,
                            Occasion occasion) -> CoordinatorStrand::Delivery {
          const auto finish = [done](const absl::StatusOr<RolledBack>& answer) {
            return [done, answer](const absl::Status& kept) { done(kept.ok() ? answer : kept); };
          };
          if (coordinator.server_incarnation() != begun.life) {
            return finish(WhereItIsBack(coordinator, round, begun.rounds_done, now));
          }
          const auto ending = coordinator.Ending();
          if (ending.has_value() && !ending->ok()) return finish(ending->status());
          if (ending.has_value()) {
            return finish(
                absl::FailedPreconditionError("the job was stopped before it had gone back; the "
                                              "next start continues from the newest checkpoint"));
          }
          switch (occasion) {
            case Occasion::kChange:
              return nullptr;
            case Occasion::kPatienceOver:
              return finish(absl::DeadlineExceededError(absl::StrCat(
                  "the job is going back, but has not finished after ",
                  absl::FormatDuration(patience), ": ", coordinator.Snapshot(now).waiting_for)));
            case Occasion::kReplaced:
            case Occasion::kStopping:
              break;
          }
          return finish(
              absl::UnavailableError("the coordinator is stopping, and perhaps the job has not "
                                     "gone back; give the order again when the coordinator runs"));
        });
  };
  strand.RunOrder(
      [&](coordinator::Coordinator& coordinator, absl::Time now) -> absl::StatusOr<Begun> {
        const uint64_t life = coordinator.server_incarnation();
        ASSIGN_OR_RETURN(const int64_t rounds_done, coordinator.RollBack(round, why, now));
        return Begun{life, rounds_done};
      },
      await_return);
}

}  // namespace lodestar::rpc
