#include "server/coordinator/cluster_memory.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/job_settings.h"
#include "common/messages/cluster_messages.h"
#include "common/params/bucket_plan.h"
#include "common/params/model_spec_json.h"
#include "common/params/shard_plan.h"
#include "common/plan/exchange_choice.h"
#include "common/runtime/status_macros.h"

namespace lodestar {

std::optional<CoordinatorMemory> MemoryOf(const ClusterState& state) {
  // A server could not go on; once it is started again, it may.
  const bool is_cut_short =
      state.phase == CoordinatorPhase::kFailed && !state.ending.failure_once_saved().ok();
  const bool goes_on = state.is_ready() && state.ending.failure().ok();
  if ((!goes_on && !is_cut_short) || !state.shards.all_loaded()) return std::nullopt;
  // A trial of settings is not gone on from: the next process measures anew.
  if (state.tuning.is_measuring()) return std::nullopt;
  // The workers and servers that are to learn of the end have learned it. Only what could not be
  // saved is still to be kept.
  const bool is_over = state.ending.should_exit() || is_cut_short;
  const std::optional<LastSave::Outcome>& saved = state.checkpoints.last_save().outcome();
  if (is_over && saved.has_value() && saved->ok()) return std::nullopt;
  CoordinatorMemory memory;
  memory.settings = JobSettings(state.config.job);
  memory.model = ModelSpecToJson(state.config.job.model);
  if (std::holds_alternative<ClientModelSpec>(state.config.job.model.architecture)) {
    memory.layout = state.layout;
  }
  memory.layout_hash = state.layout->hash();
  memory.shards = state.shards.memory();
  memory.map_version = state.map->version;
  if (!is_over) {
    memory.ending = state.ending.memory();
  }
  memory.awaits_settings = state.awaits_settings;
  memory.supply = state.supply.memory();
  memory.membership = state.membership.memory();
  for (const auto& [worker, desk] : state.desks) {
    memory.desks.emplace(
        worker, RememberedWorker{.connection = state.membership.ConnectionOf(worker).memory(),
                                 .assignment = desk.assignment.memory(),
                                 .activity = state.stragglers.Of(worker).memory(),
                                 .faults = state.faults.MemoryOf(worker)});
  }
  memory.ledger = state.ledger.memory();
  for (const auto& [number, round] : state.open) memory.open.emplace(number, round.memory());
  memory.evaluation_attempt = state.evaluation_attempt;
  memory.faults = state.faults.memory();
  memory.orders = state.orders();
  memory.quota = state.quota.memory();
  memory.checkpoints = state.checkpoints.memory();
  memory.progress = state.progress.memory();
  memory.last_rounds.assign(state.unrecorded.begin(), state.unrecorded.end());
  return memory;
}

absl::Status Recall(CoordinatorMemory memory, absl::Time now, ClusterState& state) {
  RETURN_IF_ERROR(CheckWhole(memory));
  state.config.job = JobOf(memory, state.asked_job, state.config.given, state.config.open_settings);
  if (state.config.open_settings.any()) {
    state.tuning.End(absl::StrCat("as the journal and the flags have it: ",
                                  absl::StrJoin(ExchangeFlags(state.config.job), " ")));
  }
  state.awaits_settings = memory.awaits_settings;
  const bool is_client_model = memory.layout.has_value();
  if (is_client_model) state.layout = std::move(memory.layout);
  if (!state.layout.has_value()) return absl::DataLossError("the layout of the model is not there");
  if (!is_client_model && memory.layout_hash != state.layout->hash()) {
    // The rounds in the journals of the shards are of the layout in which they were trained.
    ASSIGN_OR_RETURN(Layout earlier, BuildEarlierLayout(state.config.job.model));
    if (!memory.layout_hash.empty() && memory.layout_hash != earlier.hash()) {
      return absl::DataLossError(absl::StrCat(
          "the layout of the model has hash ", memory.layout_hash, ", this release has ",
          state.layout->hash(), " and, as earlier ones had it, ", earlier.hash()));
    }
    state.layout = std::move(earlier);
  }
  state.shards.Resume(std::move(memory.shards), now);
  RETURN_IF_ERROR(PlanMap(memory.map_version, state));
  state.ending.Resume(std::move(memory.ending), now);
  state.supply.Resume(memory.supply, now);
  RETURN_IF_ERROR(state.membership.Resume(std::move(memory.membership), now));
  for (auto& [worker, of_worker] : memory.desks) {
    state.membership.Resume(worker, std::move(of_worker.connection));
    state.desks[worker] = {.assignment = WorkerAssignment(std::move(of_worker.assignment), now)};
    state.stragglers.Resume(worker, of_worker.activity);
    state.faults.Resume(worker, std::move(of_worker.faults));
  }
  state.ledger = WorkLedger(state.config.job, std::move(memory.ledger));
  for (auto& [number, round] : memory.open) {
    state.open.emplace(number, OpenRound(std::move(round), now));
  }
  state.evaluation_attempt = memory.evaluation_attempt;
  state.faults.Resume(memory.faults);
  state.TakeOrders(std::move(memory.orders), now);
  state.quota.Resume(memory.quota);
  state.progress.Resume(memory.progress);
  state.unrecorded.assign(memory.last_rounds.begin(), memory.last_rounds.end());
  if (!state.open.empty()) state.progress.OnOpened(now);
  state.checkpoints.Resume(memory.checkpoints);
  if (const auto& last = memory.checkpoints.tracker.last; last.has_value()) {
    state.shards.OnPublished({/*directory=*/"", last->path, last->round});
  }
  return absl::OkStatus();
}

uint64_t NextMapVersion(uint64_t version, absl::Time now) {
  return std::max<uint64_t>(version + 1, std::max<int64_t>(absl::ToUnixMillis(now), 0));
}

absl::Status PlanMap(uint64_t version, ClusterState& state) {
  ASSIGN_OR_RETURN(const std::vector<ElementRange> ranges,
                   PlanShards(*state.layout, state.config.num_shards));
  ASSIGN_OR_RETURN(std::vector<Bucket> buckets,
                   PlanBuckets(*state.layout, ranges, state.config.job.bucket_bytes));
  auto map = std::make_shared<ClusterMap>();
  map->version = version;
  map->layout = *state.layout;
  map->buckets = std::move(buckets);
  for (int i = 0; i < state.config.num_shards; ++i) {
    map->servers.push_back({i, state.shards.servers()[i].address, ranges[i]});
  }
  state.map = std::move(map);
  return absl::OkStatus();
}

}  // namespace lodestar
