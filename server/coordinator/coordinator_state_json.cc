#include "server/coordinator/coordinator_state_json.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/coordinator/quarantine.h"

namespace lodestar {
namespace {

using Json = nlohmann::json;

absl::Status Refuse(absl::string_view field, absl::string_view wanted) {
  return absl::DataLossError(absl::StrCat("coordinator state: field '", field, "' is not ", wanted,
                                          "; use an older checkpoint"));
}

absl::StatusOr<const Json*> Member(const Json& object, const char* field) {
  if (!object.is_object()) return Refuse(field, "in an object");
  auto it = object.find(field);
  if (it == object.end()) return Refuse(field, "there");
  return &*it;
}

absl::StatusOr<int64_t> Integer(const Json& object, const char* field, int64_t minimum) {
  ASSIGN_OR_RETURN(const Json* value, Member(object, field));
  const bool is_too_large =
      value->is_number_unsigned() && value->get<uint64_t>() > std::numeric_limits<int64_t>::max();
  if (!value->is_number_integer() || is_too_large || value->get<int64_t>() < minimum) {
    return Refuse(field, absl::StrCat("an integer of at least ", minimum));
  }
  return value->get<int64_t>();
}

absl::StatusOr<uint64_t> Unsigned(const Json& object, const char* field) {
  ASSIGN_OR_RETURN(const Json* value, Member(object, field));
  if (!value->is_number_unsigned()) return Refuse(field, "an integer of at least 0");
  return value->get<uint64_t>();
}

absl::StatusOr<std::string> String(const Json& object, const char* field) {
  ASSIGN_OR_RETURN(const Json* value, Member(object, field));
  if (!value->is_string()) return Refuse(field, "a string");
  return value->get<std::string>();
}

Json DataSetToJson(const DataSetState& set) {
  return {{"fingerprint", set.info.fingerprint},
          {"num_train_samples", set.info.num_train_samples},
          {"num_heldout_samples", set.info.num_heldout_samples},
          {"tokens_per_sample", set.info.tokens_per_sample},
          {"own_partition", set.info.own_partition},
          {"claimant", set.claimant},
          {"next_sample", set.next_sample}};
}

// But for the position of its cursor.
absl::StatusOr<DataSetState> DataSetFromJson(const Json& json) {
  DataSetState set;
  DatasetInfo& dataset = set.info;
  ASSIGN_OR_RETURN(dataset.fingerprint, String(json, "fingerprint"));
  ASSIGN_OR_RETURN(dataset.num_train_samples, Integer(json, "num_train_samples", 0));
  ASSIGN_OR_RETURN(dataset.num_heldout_samples, Integer(json, "num_heldout_samples", 0));
  ASSIGN_OR_RETURN(dataset.tokens_per_sample, Integer(json, "tokens_per_sample", 0));
  ASSIGN_OR_RETURN(const Json* own, Member(json, "own_partition"));
  if (!own->is_boolean()) return Refuse("own_partition", "true or false");
  dataset.own_partition = own->get<bool>();
  // For people only: a checkpoint without it is as good.
  if (json.contains("claimant")) {
    ASSIGN_OR_RETURN(set.claimant, String(json, "claimant"));
  }
  return set;
}

// Checkpoints of version 0.1.0 have one data set, that of the worker that joined first, and the
// position of the whole job as its cursor.
absl::Status SingleDataSetFromJson(const Json& dataset, LedgerState& ledger) {
  if (dataset.is_null() || ledger.next_sample == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(DataSetState set, DataSetFromJson(dataset));
  set.next_sample = ledger.next_sample;
  ledger.data_sets.push_back(std::move(set));
  return absl::OkStatus();
}

absl::StatusOr<double> ScaleFromJson(const Json& json, const char* name) {
  ASSIGN_OR_RETURN(const Json* scale, Member(json, name));
  if (!scale->is_number() || !(scale->get<double>() >= 0.0)) {
    return Refuse(name, "a number of at least 0");
  }
  return scale->get<double>();
}

absl::StatusOr<LedgerState> LedgerFromJson(const Json& json) {
  LedgerState ledger;
  ASSIGN_OR_RETURN(ledger.next_round, Integer(json, "next_round", 0));
  if (json.contains("lost_rounds")) {
    ASSIGN_OR_RETURN(ledger.lost_rounds, Integer(json, "lost_rounds", 0));
    if (ledger.lost_rounds > ledger.next_round) {
      return Refuse("lost_rounds", absl::StrCat("at most ", ledger.next_round));
    }
  }
  ASSIGN_OR_RETURN(ledger.next_sample, Integer(json, "next_sample", 0));
  ASSIGN_OR_RETURN(ledger.trained_samples, Integer(json, "trained_samples", 0));
  ASSIGN_OR_RETURN(ledger.final_evaluation_round, Integer(json, "final_evaluation_round", -1));
  if (json.contains("rollbacks")) {
    ASSIGN_OR_RETURN(ledger.rollbacks, Integer(json, "rollbacks", 0));
    ASSIGN_OR_RETURN(ledger.learning_rate_scale, ScaleFromJson(json, "learning_rate_scale"));
  }
  // Earlier servers did not write it.
  if (json.contains("scale_by_operators")) {
    ASSIGN_OR_RETURN(ledger.scale_by_operators, ScaleFromJson(json, "scale_by_operators"));
  }
  if (const auto dataset = json.find("dataset"); dataset != json.end()) {
    RETURN_IF_ERROR(SingleDataSetFromJson(*dataset, ledger));
    return ledger;
  }
  ASSIGN_OR_RETURN(const Json* data_sets, Member(json, "data_sets"));
  if (!data_sets->is_array()) return Refuse("data_sets", "a list");
  for (const Json& entry : *data_sets) {
    ASSIGN_OR_RETURN(DataSetState set, DataSetFromJson(entry));
    ASSIGN_OR_RETURN(set.next_sample, Integer(entry, "next_sample", 0));
    ledger.data_sets.push_back(std::move(set));
  }
  return ledger;
}

absl::StatusOr<MembershipState> MembershipFromJson(const Json& json) {
  MembershipState membership;
  ASSIGN_OR_RETURN(const uint64_t incarnation, Unsigned(json, "last_incarnation"));
  ASSIGN_OR_RETURN(const uint64_t view, Unsigned(json, "view"));
  membership.last_incarnation = Incarnation(incarnation);
  membership.view = ViewId(view);
  if (json.contains("last_id")) {
    ASSIGN_OR_RETURN(const uint64_t last_id, Unsigned(json, "last_id"));
    if (last_id > std::numeric_limits<uint32_t>::max()) return Refuse("last_id", "below 2^32");
    membership.last_id = WorkerId(static_cast<uint32_t>(last_id));
  }
  ASSIGN_OR_RETURN(const Json* workers, Member(json, "workers"));
  if (!workers->is_array()) return Refuse("workers", "a list");
  for (const Json& entry : *workers) {
    MembershipState::Name name;
    ASSIGN_OR_RETURN(name.name, String(entry, "name"));
    ASSIGN_OR_RETURN(const int64_t id, Integer(entry, "id", 1));
    if (id > std::numeric_limits<uint32_t>::max()) return Refuse("id", "below 2^32");
    name.id = WorkerId(static_cast<uint32_t>(id));
    name.was_alive = !entry.contains("gone");
    membership.names.push_back(std::move(name));
  }
  return membership;
}

Json NumberOrNull(const std::optional<double>& value) {
  // JSON has no NaN.
  return value.has_value() && std::isfinite(*value) ? Json(*value) : Json();
}

Json ProgressToJson(const ProgressState& progress) {
  const JobLoss& loss = progress.loss;
  return {{"trained_ms", absl::ToInt64Milliseconds(progress.trained_time)},
          {"train_loss", NumberOrNull(loss.train)},
          {"train_loss_round", loss.train_round.value()},
          {"heldout_loss", NumberOrNull(loss.heldout)},
          {"heldout_accuracy", NumberOrNull(loss.heldout_accuracy)},
          {"heldout_round", loss.heldout_round.value()}};
}

absl::StatusOr<std::optional<double>> OptionalNumber(const Json& object, const char* field) {
  ASSIGN_OR_RETURN(const Json* value, Member(object, field));
  if (value->is_null()) return std::optional<double>();
  if (!value->is_number()) return Refuse(field, "a number or null");
  return std::optional<double>(value->get<double>());
}

absl::StatusOr<ProgressState> ProgressFromJson(const Json& json) {
  ProgressState progress;
  ASSIGN_OR_RETURN(const int64_t trained_ms, Integer(json, "trained_ms", 0));
  progress.trained_time = absl::Milliseconds(trained_ms);
  JobLoss& loss = progress.loss;
  ASSIGN_OR_RETURN(loss.train, OptionalNumber(json, "train_loss"));
  ASSIGN_OR_RETURN(loss.heldout, OptionalNumber(json, "heldout_loss"));
  ASSIGN_OR_RETURN(loss.heldout_accuracy, OptionalNumber(json, "heldout_accuracy"));
  ASSIGN_OR_RETURN(const int64_t train_round, Integer(json, "train_loss_round", 0));
  ASSIGN_OR_RETURN(const int64_t heldout_round, Integer(json, "heldout_round", 0));
  loss.train_round = Round(train_round);
  loss.heldout_round = Round(heldout_round);
  return progress;
}

Json QuarantineToJson(const Quarantine::Memory& quarantine) {
  Json json = Json::array();
  for (const Quarantine::Entry& entry : quarantine) {
    json.push_back({{"name", entry.name}, {"reason", entry.reason}});
    if (entry.is_identity) json.back()["is_identity"] = true;
    if (entry.is_by_operator) json.back()["is_by_operator"] = true;
  }
  return json;
}

absl::StatusOr<Quarantine::Memory> QuarantineFromJson(const Json& json) {
  if (!json.is_array() || json.size() > Quarantine::kMaxNames) {
    return Refuse("quarantine", absl::StrCat("a list of at most ", Quarantine::kMaxNames));
  }
  Quarantine::Memory quarantine;
  for (const Json& entry : json) {
    Quarantine::Entry shut_out;
    ASSIGN_OR_RETURN(shut_out.name, String(entry, "name"));
    ASSIGN_OR_RETURN(shut_out.reason, String(entry, "reason"));
    shut_out.is_identity = entry.contains("is_identity");
    shut_out.is_by_operator = entry.contains("is_by_operator");
    quarantine.push_back(std::move(shut_out));
  }
  return quarantine;
}

}  // namespace

std::string CoordinatorStateToJson(const CoordinatorState& state) {
  Json workers = Json::array();
  for (const MembershipState::Name& name : state.membership.names) {
    workers.push_back({{"name", name.name}, {"id", name.id.value()}});
    if (!name.was_alive) workers.back()["gone"] = true;
  }
  const LedgerState& ledger = state.ledger;
  Json data_sets = Json::array();
  for (const DataSetState& set : ledger.data_sets) data_sets.push_back(DataSetToJson(set));
  Json json = {{"server_incarnation", state.server_incarnation},
               {"ledger",
                {{"next_round", ledger.next_round},
                 {"lost_rounds", ledger.lost_rounds},
                 {"next_sample", ledger.next_sample},
                 {"trained_samples", ledger.trained_samples},
                 {"final_evaluation_round", ledger.final_evaluation_round},
                 {"rollbacks", ledger.rollbacks},
                 {"learning_rate_scale", ledger.learning_rate_scale},
                 {"scale_by_operators", ledger.scale_by_operators},
                 {"data_sets", data_sets}}},
               {"membership",
                {{"last_incarnation", state.membership.last_incarnation.value()},
                 {"last_id", state.membership.last_id.value()},
                 {"view", state.membership.view.value()},
                 {"workers", workers}}},
               {"progress", ProgressToJson(state.progress)},
               {"quarantine", QuarantineToJson(state.orders.quarantine)}};
  if (state.orders.pause.has_value()) json["pause"] = *state.orders.pause;
  // A fingerprint comes from a peer and need not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<CoordinatorState> CoordinatorStateFromJson(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::DataLossError("coordinator state: not JSON");
  CoordinatorState state;
  ASSIGN_OR_RETURN(state.server_incarnation, Unsigned(json, "server_incarnation"));
  ASSIGN_OR_RETURN(const Json* ledger, Member(json, "ledger"));
  ASSIGN_OR_RETURN(state.ledger, LedgerFromJson(*ledger));
  ASSIGN_OR_RETURN(const Json* membership, Member(json, "membership"));
  ASSIGN_OR_RETURN(state.membership, MembershipFromJson(*membership));
  // For people only: a checkpoint without it is as good.
  if (const auto progress = json.find("progress"); progress != json.end()) {
    ASSIGN_OR_RETURN(state.progress, ProgressFromJson(*progress));
  }
  // Without it, as in checkpoints of earlier versions, nobody is shut out.
  if (const auto quarantine = json.find("quarantine"); quarantine != json.end()) {
    ASSIGN_OR_RETURN(state.orders.quarantine, QuarantineFromJson(*quarantine));
  }
  if (json.contains("pause")) {
    ASSIGN_OR_RETURN(state.orders.pause, String(json, "pause"));
  }
  return state;
}

}  // namespace lodestar
