// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/coordinator_memory.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/job/job_fields.h"
#include "common/params/model_spec_json.h"
#include "server/coordinator/rounds/data_sets.h"

namespace lodestar::coordinator {
namespace {

// Returns true if only the coordinator uses this setting. After a restart, servers and workers get
// the new value from the coordinator.
bool IsOfCoordinatorOnly(absl::string_view flag) {
  const job::JobField* const field = job::FindJobField(flag);
  return field != nullptr && field->is_of_coordinator;
}

}  // namespace

bool IsAllInCheckpoint(const CoordinatorMemory& memory) {
  if (!memory.rounds.open.empty() || !memory.checkpoints.tracker.last.has_value()) return false;
  checkpoints::LedgerState ledger = memory.rounds.ledger.state;
  ledger.data_sets = rounds::DataSets(memory.rounds.ledger.data).Export();
  return memory.checkpoints.tracker.last_ledger == ledger &&
         memory.checkpoints.tracker.last_orders == memory.orders;
}

absl::Status CheckSameJob(const CoordinatorMemory& memory, const job::JobSpec& job,
                          int num_shards) {
  std::vector<std::string> differences;
  const auto compare = [&](absl::string_view flag, absl::string_view was, absl::string_view asked) {
    if (was != asked) {
      differences.push_back(
          absl::StrCat("--", flag, " was ", was, ", but now ", asked, " is given"));
    }
  };
  compare("shard", absl::StrCat("0/", memory.shards.servers.size()),
          absl::StrCat("0/", num_shards));
  compare("model", memory.model.spec, params::ModelSpecToJson(job.model));
  std::map<std::string, std::string> settings;
  for (const job::JobSetting& setting : memory.model.settings)
    settings[setting.flag] = setting.value;
  for (const job::JobSetting& setting : job::JobSettings(job)) {
    // If the memory lacks a setting, an earlier release wrote the memory. That release did not know
    // the setting, so the setting had no effect.
    const auto was = settings.find(setting.flag);
    if (was == settings.end() || IsOfCoordinatorOnly(setting.flag)) continue;
    compare(setting.flag, was->second, setting.value);
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrJoin(differences, "; "));
}

absl::Status CheckWhole(const CoordinatorMemory& memory) {
  const rounds::DataSets::Memory& data = memory.rounds.ledger.data;
  for (const auto& [worker, set] : data.set_of) {
    if (set >= data.sets.size()) {
      return absl::DataLossError(absl::StrCat("worker ", worker.value(), " has data set ", set,
                                              ", but there are only ", data.sets.size()));
    }
  }
  for (const membership::WorkerRecord& record : memory.membership.table.workers) {
    const bool lacks_desk = record.is_alive() && !memory.desks.contains(record.id);
    if (lacks_desk || (record.is_member() && !data.set_of.contains(record.id))) {
      return absl::DataLossError(absl::StrCat("the ", lacks_desk ? "progress" : "data set",
                                              " of worker ", record.id.value(), " is missing"));
    }
  }
  for (const auto& [number, round] : memory.rounds.open) {
    for (const sync::RosterMember& member : round.plan.roster) {
      const auto share = round.shares.find(member.worker);
      if (share != round.shares.end() &&
          (share->second.state != rounds::OpenRound::ShareState::kMissing ||
           memory.desks.contains(member.worker))) {
        continue;
      }
      return absl::DataLossError(absl::StrCat("round ", number.value(), " names worker ",
                                              member.worker.value(),
                                              ", but this worker does not exist"));
    }
  }
  return absl::OkStatus();
}

}  // namespace lodestar::coordinator
