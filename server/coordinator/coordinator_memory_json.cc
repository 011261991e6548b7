// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/coordinator_memory_json.h"

#include <cstdint>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/archive/change_archive.h"
#include "common/archive/json_archive.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"

// Functions that read and write the types of the coordinator's memory, field by field.
namespace lodestar::archive {

template <typename Archive>
void Describe(Archive& archive, job::JobSetting& setting) {
  archive("flag", setting.flag);
  archive("value", setting.value);
}

template <typename Archive>
void Describe(Archive& archive, params::TensorSpec& tensor) {
  archive("name", tensor.name);
  archive("shape", tensor.shape);
  archive("block", tensor.block);
  archive("decay", tensor.decay);
  archive("initializer", tensor.initializer.kind);
  archive("scale", tensor.initializer.scale);
  archive.Optional("averaged", tensor.averaged);
  archive.Optional("embedding", tensor.embedding);
}

template <typename Archive>
void Describe(Archive& archive, shards::ShardFleet::Holder& holder) {
  archive("instance_id", holder.instance_id);
  archive("address", holder.address);
  archive.Optional("journal_end", holder.journal_end);
  archive.Optional("first_segment", holder.first_segment);
  archive.Optional("process_id", holder.process_id);
}

template <typename Archive>
void Describe(Archive& archive, messages::WorkerLife& life) {
  archive("worker", life.worker);
  archive("incarnation", life.incarnation);
}

template <typename Archive>
void Describe(Archive& archive, model::WeightsSupply::Memory& supply) {
  archive("is_awaited", supply.is_awaited);
  archive("supplier", supply.supplier);
}

template <typename Archive>
void Describe(Archive& archive, shards::NormReduction::Memory& norms) {
  archive("open", norms.open);
  archive("totals", norms.totals);
}

template <typename Archive>
void Describe(Archive& archive, membership::WorkerRecord& worker) {
  archive("id", worker.id);
  archive("incarnation", worker.incarnation);
  archive("name", worker.name);
  archive("instance_id", worker.instance_id);
  archive("state", worker.state);
  archive("ended_at", worker.ended_at);
  archive("end_reason", worker.end_reason);
}

template <typename Archive>
void Describe(Archive& archive, membership::MembershipTable::Memory& membership) {
  archive("workers", membership.workers);
  archive("ended", membership.ended);
  archive("last_id", membership.last_id);
  archive("last_incarnation", membership.last_incarnation);
  archive("view", membership.view);
}

template <typename Archive>
void Describe(Archive& archive, job::JobLoss& loss) {
  archive("train", loss.train);
  archive("train_round", loss.train_round);
  archive("heldout", loss.heldout);
  archive("heldout_accuracy", loss.heldout_accuracy);
  archive("heldout_round", loss.heldout_round);
}

template <typename Archive>
void Describe(Archive& archive, messages::Grant& grant) {
  archive("kind", grant.kind);
  archive("round", grant.round);
  archive("view", grant.view);
  archive("first_sample", grant.first_sample);
  archive.Optional("round_first_sample", grant.round_first_sample);
  archive("first_position", grant.first_position);
  archive("num_samples", grant.num_samples);
  archive("local_steps", grant.local_steps);
  archive.Optional("round_samples", grant.round_samples);
  archive("learning_rates", grant.learning_rates);
  archive("min_round", grant.min_round);
  archive("first_heldout_sample", grant.first_heldout_sample);
  archive("num_heldout_samples", grant.num_heldout_samples);
  archive("evaluation_set_size", grant.evaluation_set_size);
  archive("total_rounds", grant.total_rounds);
  archive("loss", grant.loss);
}

template <typename Archive>
void Describe(Archive& archive, faults::Quarantine::Entry& entry) {
  archive("name", entry.name);
  archive("reason", entry.reason);
  archive.Optional("is_identity", entry.is_identity);
  archive.Optional("is_by_operator", entry.is_by_operator);
}

template <typename Archive>
void Describe(Archive& archive, membership::WorkerConnection::Memory& connection) {
  archive("instance_id", connection.instance_id);
  archive("device", connection.device);
  archive.Optional("identity", connection.identity);
  archive.Optional("map_version", connection.map_version);
  archive.Optional("frozen_hash", connection.frozen_hash);
  archive.Optional("index", connection.index);
}

template <typename Archive>
void Describe(Archive& archive, rounds::WorkerAssignment::Memory& assignment) {
  archive("is_waiting", assignment.is_waiting);
  archive("is_leaving", assignment.is_leaving);
  archive("grant", assignment.grant);
  archive.Optional("num_extra_samples", assignment.num_extra_samples);
  archive.Optional("wants_no_samples", assignment.wants_no_samples);
  archive("last_granted", assignment.last_granted);
  archive("last_reported", assignment.last_reported);
  archive("progress", assignment.progress);
  archive("rounds_completed", assignment.rounds_completed);
  archive.Optional("residuals_lost", assignment.residuals_lost);
  archive.Optional("process_began_at", assignment.process_began_at);
  archive.Optional("process_registered_at", assignment.process_registered_at);
  archive.Optional("start_to_contribution", assignment.start_to_contribution);
  archive.Optional("registration_to_contribution", assignment.registration_to_contribution);
  archive.Optional("samples_in_hand", assignment.samples_in_hand);
}

template <typename Archive>
void Describe(Archive& archive, stragglers::WorkerActivity::Memory& activity) {
  archive("times_dropped", activity.times_dropped);
  archive("rests_until", activity.rests_until);
  archive.Optional("kept_space", activity.kept_space);
}

template <typename Archive>
void Describe(Archive& archive, faults::WorkerFaults::Memory& faults) {
  archive("times_not_finite", faults.times_not_finite);
  archive("not_finite_life", faults.not_finite_life);
  archive("finite_reports_then", faults.finite_reports_then);
  archive.Optional("poisoned_rounds", faults.poisoned_rounds);
}

template <typename Archive>
void Describe(Archive& archive, faults::FaultPolicy::Memory& faults) {
  archive("finite_reports", faults.finite_reports);
  archive("rollbacks", faults.rollbacks);
  archive("learning_rate_scale", faults.learning_rate_scale);
  archive.Optional("scale_by_operators", faults.scale_by_operators);
}

// The fields of the four parts of a worker's memory are in one JSON object.
template <typename Archive>
void Describe(Archive& archive, coordinator::RememberedWorker& worker) {
  Describe(archive, worker.connection);
  Describe(archive, worker.assignment);
  Describe(archive, worker.activity);
  Describe(archive, worker.faults);
}

template <typename Archive>
void Describe(Archive& archive, messages::DatasetInfo& info) {
  archive("fingerprint", info.fingerprint);
  archive("num_train_samples", info.num_train_samples);
  archive("num_heldout_samples", info.num_heldout_samples);
  archive("tokens_per_sample", info.tokens_per_sample);
  archive("own_partition", info.own_partition);
}

template <typename Archive>
void Describe(Archive& archive, checkpoints::DataSetState& set) {
  archive("info", set.info);
  archive("next_sample", set.next_sample);
  archive("claimant", set.claimant);
}

template <typename Archive>
void Describe(Archive& archive, checkpoints::LedgerState& state) {
  archive("next_round", state.next_round);
  archive("lost_rounds", state.lost_rounds);
  archive("next_sample", state.next_sample);
  archive("trained_samples", state.trained_samples);
  archive("final_evaluation_round", state.final_evaluation_round);
  archive("data_sets", state.data_sets);
  archive("rollbacks", state.rollbacks);
  archive("learning_rate_scale", state.learning_rate_scale);
  archive.Optional("scale_by_operators", state.scale_by_operators);
}

template <typename Archive>
void Describe(Archive& archive, rounds::DataSets::Memory& data) {
  archive("sets", data.sets);
  archive("set_of", data.set_of);
}

template <typename Archive>
void Describe(Archive& archive, rounds::HeldoutSums& sums) {
  archive("loss_sum", sums.loss_sum);
  archive("correct", sums.correct);
  archive("predictions", sums.predictions);
  archive("complete", sums.complete);
}

template <typename Archive>
void Describe(Archive& archive, rounds::EvaluationCourse::Memory& evaluations) {
  archive("last", evaluations.last);
  archive("owed", evaluations.owed);
  archive("travelling", evaluations.travelling);
  archive("unfinished", evaluations.unfinished);
}

template <typename Archive>
void Describe(Archive& archive, rounds::WorkLedger::Memory& ledger) {
  archive("state", ledger.state);
  archive("data", ledger.data);
  archive("evaluations", ledger.evaluations);
  archive("is_evaluation_due", ledger.is_evaluation_due);
  archive("evaluated_place", ledger.evaluated_place);
}

template <typename Archive>
void Describe(Archive& archive, sync::RosterMember& member) {
  archive("worker", member.worker);
  archive("incarnation", member.incarnation);
  archive("num_samples", member.num_samples);
}

template <typename Archive>
void Describe(Archive& archive, sync::RoundPlan& plan) {
  archive("round", plan.round);
  archive("view", plan.view);
  archive("roster", plan.roster);
  archive("learning_rate", plan.learning_rate);
}

template <typename Archive>
void Describe(Archive& archive, rounds::OpenRound::Share& share) {
  archive("state", share.state);
  archive("num_heldout_samples", share.num_heldout_samples);
}

template <typename Archive>
void Describe(Archive& archive, messages::MetricMeans::Mean& mean) {
  archive("value", mean.value);
  archive("count", mean.count);
}

template <typename Archive>
void Describe(Archive& archive, messages::MetricMeans& metrics) {
  archive("means", metrics.means);
  archive("num_dropped", metrics.num_dropped);
}

template <typename Archive>
void Describe(Archive& archive, rounds::RoundTimes& times) {
  archive("compute", times.compute);
  archive("communication", times.communication);
  archive("wait", times.wait);
}

template <typename Archive>
void Describe(Archive& archive, rounds::OpenRound::Memory& round) {
  archive("plan", round.plan);
  archive("is_evaluation", round.is_evaluation);
  archive("opened_at", round.opened_at);
  archive("shares", round.shares);
  archive("reported", round.reported);
  archive("loss_sum", round.loss_sum);
  archive("predictions", round.predictions);
  archive("samples", round.samples);
  archive("heldout", round.heldout);
  archive.Optional("metrics", round.metrics);
  archive.Optional("times", round.times);
}

template <typename Archive>
void Describe(Archive& archive, rounds::MemberQuota::Memory& quota) {
  archive("has_begun", quota.has_begun);
  archive("gathers_until", quota.gathers_until);
}

template <typename Archive>
void Describe(Archive& archive, checkpoints::PublishedCheckpoint& checkpoint) {
  archive("path", checkpoint.path);
  archive("round", checkpoint.round);
  archive("bytes", checkpoint.bytes);
  archive("is_in_fallback", checkpoint.is_in_fallback);
}

template <typename Archive>
void Describe(Archive& archive, checkpoints::CheckpointTracker::Memory& checkpoints) {
  archive("next_ticket", checkpoints.next_ticket);
  archive("active_directory", checkpoints.active_directory);
  archive("last", checkpoints.last);
  archive("last_ledger", checkpoints.last_ledger);
  archive.Optional("last_quarantine", checkpoints.last_orders.quarantine);
  archive.Optional("last_pause", checkpoints.last_orders.pause);
  archive("last_at", checkpoints.last_at);
  archive("last_write_time", checkpoints.last_write_time);
}

template <typename Archive>
void Describe(Archive& archive, checkpoints::CheckpointSchedule::Memory& schedule) {
  archive("last_round", schedule.last_round);
  archive("last_begun", schedule.last_begun);
  archive("write_time", schedule.write_time);
  archive.Optional("earlier_write_time", schedule.earlier_write_time);
  archive.Optional("pause", schedule.pause);
}

template <typename Archive>
void Describe(Archive& archive, checkpoints::ProgressState& progress) {
  archive("loss", progress.loss);
  archive("trained_time", progress.trained_time);
}

template <typename Archive>
void Describe(Archive& archive, rounds::JobProgress::Memory& progress) {
  archive("state", progress.state);
  archive("usual_round", progress.usual_round);
  archive("rounds_committed_short", progress.rounds_committed_short);
}

template <typename Archive>
void Describe(Archive& archive, rounds::RoundSummary& round) {
  archive("round", round.round);
  archive("trained", round.trained);
  archive("train_loss", round.train_loss);
  archive("heldout_loss", round.heldout_loss);
  archive("heldout_accuracy", round.heldout_accuracy);
  archive("heldout_complete", round.heldout_complete);
  archive("total_rounds", round.total_rounds);
  archive("samples", round.samples);
  archive("total_samples", round.total_samples);
  archive("epoch", round.epoch);
  archive("learning_rate", round.learning_rate);
  archive("duration", round.duration);
  archive("completed_at", round.completed_at);
  archive("trained_time", round.trained_time);
  archive("workers", round.workers);
  archive("committed_short", round.committed_short);
  archive.Optional("metrics", round.metrics);
  archive.Optional("metrics_dropped", round.metrics_dropped);
  archive.Optional("tokens_per_sample", round.tokens_per_sample);
  archive.Optional("worker_times", round.worker_times);
}

template <typename Archive>
void Describe(Archive& archive, coordinator::CoordinatorMemory& memory) {
  archive("settings", memory.model.settings);
  archive("model", memory.model.spec);
  archive("layout", memory.model.layout);
  archive.Optional("layout_hash", memory.model.layout_hash);
  archive("shards", memory.shards.servers);
  archive("server_incarnation", memory.shards.server_incarnation);
  archive.Optional("life_key", memory.membership.life_key);
  archive.Optional("map_version", memory.model.map_version);
  archive("stop_reason", memory.ending.stop_reason);
  archive("stop_requested_at", memory.ending.stop_requested_at);
  archive.Optional("awaits_settings", memory.model.awaits_settings);
  archive("supply", memory.model.supply);
  archive("norms", memory.shards.norms);
  archive("membership", memory.membership.table);
  archive("desks", memory.desks);
  archive("ledger", memory.rounds.ledger);
  archive("open", memory.rounds.open);
  archive("evaluation_attempt", memory.rounds.evaluation_attempt);
  archive("quota", memory.rounds.quota);
  archive("checkpoints", memory.checkpoints.tracker);
  archive("schedule", memory.checkpoints.schedule);
  Describe(archive, memory.faults);
  archive("progress", memory.rounds.progress);
  archive.Optional("last_rounds", memory.rounds.last_rounds);
  archive.Optional("quarantine", memory.orders.quarantine);
  archive.Optional("pause", memory.orders.pause);
}

// A layout is stored as its tensors.
template <>
struct StoredForm<params::Layout> {
  static std::vector<params::TensorSpec> Store(const params::Layout& layout) {
    return layout.tensors();
  }
  static absl::Status Load(const std::vector<params::TensorSpec>& tensors, params::Layout& layout) {
    ASSIGN_OR_RETURN(layout, params::Layout::FromTensors(tensors));
    return absl::OkStatus();
  }
  static bool IsSame(const params::Layout& a, const params::Layout& b) {
    return a.hash() == b.hash();
  }
};

}  // namespace lodestar::archive

namespace lodestar::coordinator {
namespace {

constexpr int64_t kWholeVersion = 1;
constexpr int64_t kChangesVersion = 2;

static_assert(archive::Structure<CoordinatorMemory>);

// Returns how a record is written as JSON. Its times are stored relative to `now`, which is the
// coordinator's time.
archive::JsonStyle StyleAt(absl::Time now) { return {.now = now, .has_special_numbers = true}; }

// A record of the journal as JSON. It is whole, or has only the changes since the record before it.
struct ParsedRecord {
  Json json;
  uint64_t journal_id = 0;
  bool is_whole = false;
  absl::Duration since_whole;  // Time between the last whole record and this record.
};

absl::StatusOr<ParsedRecord> ParseRecord(absl::string_view text) {
  constexpr JsonLimits kAnySize = {.max_bytes = std::numeric_limits<int64_t>::max()};
  ParsedRecord record;
  ASSIGN_OR_RETURN(record.json, ParseJson(text, kAnySize));
  int64_t version = 0;
  archive::JsonReader reader(record.json);
  reader("version", version);
  if (reader.status().ok() && version > kChangesVersion) {
    return absl::UnimplementedError(absl::StrCat(
        "the coordinator's state in the journal has version ", version, ", but this release reads ",
        kChangesVersion, "; start the release that wrote it"));
  }
  reader.Optional("journal_id", record.journal_id);
  reader.Optional("since_whole", record.since_whole);
  RETURN_IF_ERROR(reader.status());
  record.is_whole = version == kWholeVersion;
  return record;
}

// Returns the error for callers if `status` says what is wrong with a record. Most errors become
// DataLoss.
absl::Status InMemory(const absl::Status& status) {
  if (absl::IsUnimplemented(status)) return status;
  return absl::DataLossError(
      absl::StrCat("the coordinator's state in the journal is damaged: ", status.message()));
}

absl::StatusOr<std::optional<CoordinatorMemory>> ReadRecords(absl::Span<const std::string> records,
                                                             absl::Time now, uint64_t& journal_id) {
  // Ordered from the newest record to the oldest.
  std::vector<ParsedRecord> parsed;
  do {
    if (parsed.size() == records.size())
      return absl::DataLossError("no record has the complete state");
    ASSIGN_OR_RETURN(ParsedRecord record, ParseRecord(records[records.size() - 1 - parsed.size()]));
    parsed.push_back(std::move(record));
  } while (!parsed.back().is_whole);
  journal_id = parsed.front().journal_id;
  const absl::Time whole_at = now - parsed.front().since_whole;
  std::optional<CoordinatorMemory> memory;
  archive::JsonReader whole(parsed.back().json, StyleAt(whole_at));
  whole("memory", memory);
  RETURN_IF_ERROR(whole.status());
  parsed.pop_back();
  for (; !parsed.empty(); parsed.pop_back()) {
    const ParsedRecord& record = parsed.back();
    const auto changes = record.json.find("changes");
    if (changes == record.json.end() || !memory.has_value()) {
      return absl::DataLossError(
          "a record has no field 'changes', or no record before it has the complete state");
    }
    const archive::ChangeReader reader(StyleAt(whole_at + record.since_whole));
    RETURN_IF_ERROR(archive::InField("changes", reader.Apply(*changes, *memory)));
  }
  return memory;
}

}  // namespace

std::string CoordinatorMemoryToJson(const std::optional<CoordinatorMemory>& memory, absl::Time now,
                                    uint64_t journal_id) {
  SortedJson json = {{"version", kWholeVersion},
                     {"memory", archive::BasicJsonWriter<SortedJson>(StyleAt(now)).Write(memory)}};
  if (journal_id != 0) json["journal_id"] = journal_id;
  return FormatSortedJson(json);
}

MemoryRecords::Record MemoryRecords::Next(std::optional<CoordinatorMemory> memory, absl::Time now,
                                          uint64_t journal_id, bool must_be_whole) {
  std::optional<CoordinatorMemory> before = std::exchange(last_, std::move(memory));
  if (must_be_whole || !before.has_value() || !last_.has_value()) {
    whole_at_ = now;
    return {CoordinatorMemoryToJson(last_, now, journal_id), /*is_whole=*/true};
  }
  SortedJson changes = archive::ChangeWriter(StyleAt(now)).Change(*before, *last_);
  SortedJson json = {{"version", kChangesVersion},
                     {"since_whole", archive::BasicJsonWriter<SortedJson>().Write(now - whole_at_)},
                     {"changes", changes.is_null() ? SortedJson::object() : std::move(changes)}};
  if (journal_id != 0) json["journal_id"] = journal_id;
  return {FormatSortedJson(json), /*is_whole=*/false};
}

absl::StatusOr<std::optional<CoordinatorMemory>> CoordinatorMemoryFromRecords(
    absl::Span<const std::string> records, absl::Time now, uint64_t* journal_id) {
  uint64_t id = 0;
  absl::StatusOr<std::optional<CoordinatorMemory>> memory = ReadRecords(records, now, id);
  if (journal_id != nullptr) *journal_id = id;
  if (!memory.ok()) return InMemory(memory.status());
  return memory;
}

}  // namespace lodestar::coordinator
