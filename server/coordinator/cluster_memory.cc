// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/cluster_memory.h"

#include <utility>

#include "common/runtime/status_macros.h"

namespace lodestar::coordinator {

std::optional<CoordinatorMemory> MemoryOf(const ClusterState& state) {
  // The job has failed because a server could not go on, or because the uplink ended with an error.
  // This may be different after a restart.
  const bool is_cut_short =
      state.phase == CoordinatorPhase::kFailed && !state.ending.failure_once_saved().ok();
  const bool goes_on = state.is_ready() && state.ending.failure().ok();
  if ((!goes_on && !is_cut_short) || !state.shards.all_loaded()) return std::nullopt;
  // The next process does not continue a trial of settings, but measures again.
  if (state.model.tuning().is_measuring()) return std::nullopt;
  // If the job is over and the last save has succeeded, the next process needs no memory.
  const bool is_over = state.ending.should_exit() || is_cut_short;
  const std::optional<checkpoints::LastSave::Outcome>& saved =
      state.checkpoints.last_save().outcome();
  if (is_over && saved.has_value() && saved->ok()) return std::nullopt;
  CoordinatorMemory memory;
  memory.model = state.model.memory();
  memory.shards = state.shards.memory();
  if (!is_over) {
    memory.ending = state.ending.memory();
  }
  memory.membership = state.membership.memory();
  for (const auto& [worker, assignment] : state.rounds.assignments()) {
    memory.desks.emplace(
        worker, RememberedWorker{.connection = state.membership.ConnectionOf(worker).memory(),
                                 .assignment = assignment.memory(),
                                 .activity = state.stragglers.Of(worker).memory(),
                                 .faults = state.faults.MemoryOf(worker)});
  }
  memory.rounds = state.rounds.memory();
  memory.faults = state.faults.memory();
  memory.orders = state.orders();
  memory.checkpoints = state.checkpoints.memory();
  return memory;
}

absl::Status Recall(CoordinatorMemory memory, absl::Time now, ClusterState& state) {
  RETURN_IF_ERROR(CheckWhole(memory));
  state.shards.Resume(std::move(memory.shards), now);
  RETURN_IF_ERROR(state.model.Resume(std::move(memory.model), state.shards.addresses(), now));
  state.ending.Resume(std::move(memory.ending), now);
  RETURN_IF_ERROR(state.membership.Resume(std::move(memory.membership), now));
  for (auto& [worker, of_worker] : memory.desks) {
    state.membership.Resume(worker, std::move(of_worker.connection));
    state.rounds.Resume(worker, std::move(of_worker.assignment), now);
    state.stragglers.Resume(worker, of_worker.activity);
    state.faults.Resume(worker, std::move(of_worker.faults));
  }
  state.rounds.Resume(state.model.job(), std::move(memory.rounds), now);
  state.faults.Resume(memory.faults);
  state.TakeOrders(std::move(memory.orders), now);
  state.checkpoints.Resume(memory.checkpoints);
  if (const auto& last = memory.checkpoints.tracker.last; last.has_value()) {
    state.shards.OnPublished({/*directory=*/"", last->path, last->round});
  }
  return absl::OkStatus();
}

}  // namespace lodestar::coordinator
