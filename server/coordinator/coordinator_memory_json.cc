#include "server/coordinator/coordinator_memory_json.h"

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

using Json = nlohmann::json;

constexpr int64_t kVersion = 1;

constexpr char kInfinite[] = "inf";
constexpr char kMinusInfinite[] = "-inf";
constexpr char kNotANumber[] = "nan";

// Every structure is described once, for both ways: Describe(archive, value) names each of its
// fields to `archive(name, field)`, or archive.Optional(name, field) if it came later.
template <typename Archive>
void Describe(Archive& archive, JobSetting& setting) {
  archive("flag", setting.flag);
  archive("value", setting.value);
}

template <typename Archive>
void Describe(Archive& archive, TensorSpec& tensor) {
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
void Describe(Archive& archive, ShardRegistry::Holder& holder) {
  archive("instance_id", holder.instance_id);
  archive("address", holder.address);
  archive.Optional("journal_end", holder.journal_end);
  archive.Optional("first_segment", holder.first_segment);
  archive.Optional("process_id", holder.process_id);
}

template <typename Archive>
void Describe(Archive& archive, WorkerLife& life) {
  archive("worker", life.worker);
  archive("incarnation", life.incarnation);
}

template <typename Archive>
void Describe(Archive& archive, WeightsSupply::Memory& supply) {
  archive("is_awaited", supply.is_awaited);
  archive("supplier", supply.supplier);
}

template <typename Archive>
void Describe(Archive& archive, NormBook::Memory& norms) {
  archive("open", norms.open);
  archive("totals", norms.totals);
}

template <typename Archive>
void Describe(Archive& archive, WorkerRecord& worker) {
  archive("id", worker.id);
  archive("incarnation", worker.incarnation);
  archive("name", worker.name);
  archive("instance_id", worker.instance_id);
  archive("state", worker.state);
  archive("ended_at", worker.ended_at);
  archive("end_reason", worker.end_reason);
}

template <typename Archive>
void Describe(Archive& archive, MembershipTable::Memory& membership) {
  archive("workers", membership.workers);
  archive("ended", membership.ended);
  archive("last_id", membership.last_id);
  archive("last_incarnation", membership.last_incarnation);
  archive("view", membership.view);
}

template <typename Archive>
void Describe(Archive& archive, JobLoss& loss) {
  archive("train", loss.train);
  archive("train_round", loss.train_round);
  archive("heldout", loss.heldout);
  archive("heldout_accuracy", loss.heldout_accuracy);
  archive("heldout_round", loss.heldout_round);
}

template <typename Archive>
void Describe(Archive& archive, Grant& grant) {
  archive("kind", grant.kind);
  archive("round", grant.round);
  archive("view", grant.view);
  archive("first_sample", grant.first_sample);
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
void Describe(Archive& archive, Quarantine::Entry& entry) {
  archive("name", entry.name);
  archive("reason", entry.reason);
  archive.Optional("is_identity", entry.is_identity);
  archive.Optional("is_by_operator", entry.is_by_operator);
}

template <typename Archive>
void Describe(Archive& archive, WorkerDesk::Memory& desk) {
  archive("instance_id", desk.instance_id);
  archive("times_not_finite", desk.times_not_finite);
  archive("not_finite_life", desk.not_finite_life);
  archive("finite_reports_then", desk.finite_reports_then);
  archive("times_dropped", desk.times_dropped);
  archive("rests_until", desk.rests_until);
  archive.Optional("kept_space", desk.kept_space);
  archive("device", desk.device);
  archive.Optional("identity", desk.identity);
  archive("is_waiting", desk.is_waiting);
  archive("is_leaving", desk.is_leaving);
  archive("grant", desk.grant);
  archive("last_granted", desk.last_granted);
  archive("last_reported", desk.last_reported);
  archive("progress", desk.progress);
  archive("rounds_completed", desk.rounds_completed);
  archive.Optional("residuals_lost", desk.residuals_lost);
  archive.Optional("process_began_at", desk.process_began_at);
  archive.Optional("process_registered_at", desk.process_registered_at);
  archive.Optional("start_to_contribution", desk.start_to_contribution);
  archive.Optional("registration_to_contribution", desk.registration_to_contribution);
  archive.Optional("map_version", desk.map_version);
  archive.Optional("poisoned_rounds", desk.poisoned_rounds);
  archive.Optional("samples_in_hand", desk.samples_in_hand);
}

template <typename Archive>
void Describe(Archive& archive, DatasetInfo& info) {
  archive("fingerprint", info.fingerprint);
  archive("num_train_samples", info.num_train_samples);
  archive("num_heldout_samples", info.num_heldout_samples);
  archive("tokens_per_sample", info.tokens_per_sample);
  archive("own_partition", info.own_partition);
}

template <typename Archive>
void Describe(Archive& archive, DataSetState& set) {
  archive("info", set.info);
  archive("next_sample", set.next_sample);
  archive("claimant", set.claimant);
}

template <typename Archive>
void Describe(Archive& archive, LedgerState& state) {
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
void Describe(Archive& archive, DataSets::Memory& data) {
  archive("sets", data.sets);
  archive("set_of", data.set_of);
}

template <typename Archive>
void Describe(Archive& archive, HeldoutSums& sums) {
  archive("loss_sum", sums.loss_sum);
  archive("correct", sums.correct);
  archive("predictions", sums.predictions);
  archive("complete", sums.complete);
}

template <typename Archive>
void Describe(Archive& archive, EvaluationCourse::Memory& evaluations) {
  archive("last", evaluations.last);
  archive("owed", evaluations.owed);
  archive("travelling", evaluations.travelling);
  archive("unfinished", evaluations.unfinished);
}

template <typename Archive>
void Describe(Archive& archive, WorkLedger::Memory& ledger) {
  archive("state", ledger.state);
  archive("data", ledger.data);
  archive("evaluations", ledger.evaluations);
  archive("is_evaluation_due", ledger.is_evaluation_due);
  archive("evaluated_place", ledger.evaluated_place);
}

template <typename Archive>
void Describe(Archive& archive, RosterMember& member) {
  archive("worker", member.worker);
  archive("incarnation", member.incarnation);
  archive("num_samples", member.num_samples);
}

template <typename Archive>
void Describe(Archive& archive, RoundPlan& plan) {
  archive("round", plan.round);
  archive("view", plan.view);
  archive("roster", plan.roster);
  archive("learning_rate", plan.learning_rate);
}

template <typename Archive>
void Describe(Archive& archive, OpenRound::Share& share) {
  archive("state", share.state);
  archive("num_heldout_samples", share.num_heldout_samples);
}

template <typename Archive>
void Describe(Archive& archive, MetricMeans::Mean& mean) {
  archive("value", mean.value);
  archive("count", mean.count);
}

template <typename Archive>
void Describe(Archive& archive, MetricMeans& metrics) {
  archive("means", metrics.means);
  archive("num_dropped", metrics.num_dropped);
}

template <typename Archive>
void Describe(Archive& archive, OpenRound::Memory& round) {
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
}

template <typename Archive>
void Describe(Archive& archive, MemberQuota::Memory& quota) {
  archive("has_begun", quota.has_begun);
  archive("gathers_until", quota.gathers_until);
}

template <typename Archive>
void Describe(Archive& archive, PublishedCheckpoint& checkpoint) {
  archive("path", checkpoint.path);
  archive("round", checkpoint.round);
  archive("bytes", checkpoint.bytes);
  archive("is_in_fallback", checkpoint.is_in_fallback);
}

template <typename Archive>
void Describe(Archive& archive, CheckpointCourse::Memory& checkpoints) {
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
void Describe(Archive& archive, CheckpointSchedule::Memory& schedule) {
  archive("last_round", schedule.last_round);
  archive("last_begun", schedule.last_begun);
  archive("write_time", schedule.write_time);
  archive.Optional("pause", schedule.pause);
}

template <typename Archive>
void Describe(Archive& archive, ProgressState& progress) {
  archive("loss", progress.loss);
  archive("trained_time", progress.trained_time);
}

template <typename Archive>
void Describe(Archive& archive, JobProgress::Memory& progress) {
  archive("state", progress.state);
  archive("usual_round", progress.usual_round);
  archive("rounds_committed_short", progress.rounds_committed_short);
}

template <typename Archive>
void Describe(Archive& archive, RoundSummary& round) {
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
}

template <typename Archive>
void Describe(Archive& archive, CoordinatorMemory& memory) {
  archive("settings", memory.settings);
  archive("model", memory.model);
  archive("layout", memory.layout);
  archive.Optional("layout_hash", memory.layout_hash);
  archive("shards", memory.shards);
  archive("server_incarnation", memory.server_incarnation);
  archive.Optional("life_key", memory.life_key);
  archive.Optional("map_version", memory.map_version);
  archive("stop_reason", memory.stop_reason);
  archive("stop_requested_at", memory.stop_requested_at);
  archive.Optional("awaits_settings", memory.awaits_settings);
  archive("supply", memory.supply);
  archive("norms", memory.norms);
  archive("membership", memory.membership);
  archive("desks", memory.desks);
  archive("ledger", memory.ledger);
  archive("open", memory.open);
  archive("evaluation_attempt", memory.evaluation_attempt);
  archive("finite_reports", memory.finite_reports);
  archive("quota", memory.quota);
  archive("checkpoints", memory.checkpoints);
  archive("schedule", memory.schedule);
  archive("rollbacks", memory.rollbacks);
  archive("learning_rate_scale", memory.learning_rate_scale);
  archive.Optional("scale_by_operators", memory.scale_by_operators);
  archive("progress", memory.progress);
  archive.Optional("last_rounds", memory.last_rounds);
  archive.Optional("quarantine", memory.orders.quarantine);
  archive.Optional("pause", memory.orders.pause);
}

// Makes JSON of values.
class Writer {
 public:
  explicit Writer(absl::Time now) : now_(now) {}

  template <typename Value>
  void operator()(const char* name, Value& value) {
    fields_[name] = Write(value);
  }
  template <typename Value>
  void Optional(const char* name, Value& value) {
    (*this)(name, value);
  }

  template <typename Value>
  Json Write(Value& value) const {
    if constexpr (std::is_enum_v<Value>) {
      return static_cast<std::underlying_type_t<Value>>(value);
    } else {
      Writer inner(now_);
      Describe(inner, value);
      return std::move(inner.fields_);
    }
  }
  template <std::integral Value>
  Json Write(Value& value) const {
    return value;
  }
  template <std::floating_point Value>
  Json Write(Value& value) const {
    if (std::isnan(value)) return kNotANumber;
    if (std::isinf(value)) return value > 0 ? kInfinite : kMinusInfinite;
    return static_cast<double>(value);
  }
  Json Write(std::string& value) const { return value; }
  Json Write(absl::Duration& value) const {
    if (value == absl::InfiniteDuration()) return kInfinite;
    if (value == -absl::InfiniteDuration()) return kMinusInfinite;
    return absl::ToInt64Nanoseconds(value);
  }
  Json Write(absl::Time& value) const {
    absl::Duration since = value - now_;
    return Write(since);
  }
  template <typename Tag, typename Rep>
  Json Write(StrongInt<Tag, Rep>& value) const {
    return value.value();
  }
  Json Write(Layout& layout) const {
    std::vector<TensorSpec> tensors = layout.tensors();
    return Write(tensors);
  }
  template <typename Value>
  Json Write(std::optional<Value>& value) const {
    return value.has_value() ? Write(*value) : Json();
  }
  template <typename Value>
  Json Write(std::vector<Value>& values) const {
    Json list = Json::array();
    for (Value& value : values) list.push_back(Write(value));
    return list;
  }
  template <typename Key, typename Value>
  Json Write(std::map<Key, Value>& values) const {
    Json list = Json::array();
    for (auto& [key, value] : values) {
      Key copy = key;
      list.push_back({Write(copy), Write(value)});
    }
    return list;
  }

 private:
  absl::Time now_;
  Json fields_ = Json::object();
};

// Makes values of JSON.
class Reader {
 public:
  Reader(const Json& fields, absl::Time now) : fields_(fields), now_(now) {}

  const absl::Status& status() const { return status_; }

  template <typename Value>
  void operator()(const char* name, Value& value) {
    if (!status_.ok()) return;
    const auto field = fields_.find(name);
    status_ = field == fields_.end() ? Refuse("there") : Read(*field, value);
    if (!status_.ok()) {
      const absl::string_view wanted = status_.message();
      status_ =
          absl::DataLossError(absl::StrCat(name, absl::StartsWith(wanted, " ") ? "" : ".", wanted));
    }
  }

  // What releases that wrote the same version did not have yet: it stays as it is.
  template <typename Value>
  void Optional(const char* name, Value& value) {
    if (fields_.contains(name)) (*this)(name, value);
  }

  template <typename Value>
  absl::Status Read(const Json& json, Value& value) const {
    if constexpr (std::is_enum_v<Value>) {
      std::underlying_type_t<Value> number = 0;
      RETURN_IF_ERROR(Read(json, number));
      value = static_cast<Value>(number);
      return absl::OkStatus();
    } else {
      if (!json.is_object()) return Refuse("an object");
      Reader inner(json, now_);
      Describe(inner, value);
      return inner.status();
    }
  }
  absl::Status Read(const Json& json, bool& value) const {
    if (!json.is_boolean()) return Refuse("true or false");
    value = json.get<bool>();
    return absl::OkStatus();
  }
  template <std::integral Value>
  absl::Status Read(const Json& json, Value& value) const {
    using Limits = std::numeric_limits<Value>;
    const bool fits = json.is_number_unsigned()
                          ? std::in_range<Value>(json.get<uint64_t>())
                          : json.is_number_integer() && std::in_range<Value>(json.get<int64_t>());
    if (!fits) {
      return Refuse(absl::StrCat("an integer from ", +Limits::min(), " to ", +Limits::max()));
    }
    value = json.get<Value>();
    return absl::OkStatus();
  }
  template <std::floating_point Value>
  absl::Status Read(const Json& json, Value& value) const {
    using Limits = std::numeric_limits<Value>;
    if (json == kNotANumber) {
      value = Limits::quiet_NaN();
    } else if (json == kInfinite || json == kMinusInfinite) {
      value = json == kInfinite ? Limits::infinity() : -Limits::infinity();
    } else if (json.is_number()) {
      value = static_cast<Value>(json.get<double>());
    } else {
      return Refuse("a number");
    }
    return absl::OkStatus();
  }
  absl::Status Read(const Json& json, std::string& value) const {
    if (!json.is_string()) return Refuse("a string");
    value = json.get<std::string>();
    return absl::OkStatus();
  }
  absl::Status Read(const Json& json, absl::Duration& value) const {
    if (json == kInfinite || json == kMinusInfinite) {
      value = json == kInfinite ? absl::InfiniteDuration() : -absl::InfiniteDuration();
      return absl::OkStatus();
    }
    int64_t nanoseconds = 0;
    RETURN_IF_ERROR(Read(json, nanoseconds));
    value = absl::Nanoseconds(nanoseconds);
    return absl::OkStatus();
  }
  absl::Status Read(const Json& json, absl::Time& value) const {
    absl::Duration since;
    RETURN_IF_ERROR(Read(json, since));
    value = now_ + since;
    return absl::OkStatus();
  }
  template <typename Tag, typename Rep>
  absl::Status Read(const Json& json, StrongInt<Tag, Rep>& value) const {
    Rep number = 0;
    RETURN_IF_ERROR(Read(json, number));
    value = StrongInt<Tag, Rep>(number);
    return absl::OkStatus();
  }
  absl::Status Read(const Json& json, Layout& layout) const {
    std::vector<TensorSpec> tensors;
    RETURN_IF_ERROR(Read(json, tensors));
    ASSIGN_OR_RETURN(layout, Layout::FromTensors(std::move(tensors)));
    return absl::OkStatus();
  }
  template <typename Value>
  absl::Status Read(const Json& json, std::optional<Value>& value) const {
    value.reset();
    return json.is_null() ? absl::OkStatus() : Read(json, value.emplace());
  }
  template <typename Value>
  absl::Status Read(const Json& json, std::vector<Value>& values) const {
    if (!json.is_array()) return Refuse("a list");
    for (const Json& entry : json) RETURN_IF_ERROR(Read(entry, values.emplace_back()));
    return absl::OkStatus();
  }
  template <typename Key, typename Value>
  absl::Status Read(const Json& json, std::map<Key, Value>& values) const {
    if (!json.is_array()) return Refuse("a list");
    for (const Json& entry : json) {
      if (!entry.is_array() || entry.size() != 2) return Refuse("a list of pairs");
      Key key;
      RETURN_IF_ERROR(Read(entry[0], key));
      RETURN_IF_ERROR(Read(entry[1], values[key]));
    }
    return absl::OkStatus();
  }

 private:
  // Begins with a space, so that whoever knows the field puts its name before it.
  static absl::Status Refuse(absl::string_view wanted) {
    return absl::DataLossError(absl::StrCat(" is not ", wanted));
  }

  const Json& fields_;
  absl::Time now_;
  absl::Status status_;
};

}  // namespace

std::string CoordinatorMemoryToJson(const std::optional<CoordinatorMemory>& memory, absl::Time now,
                                    uint64_t journal_id) {
  std::optional<CoordinatorMemory> copy = memory;
  Json json = {{"version", kVersion}, {"memory", Writer(now).Write(copy)}};
  if (journal_id != 0) json["journal_id"] = journal_id;
  // What peers have sent need not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<std::optional<CoordinatorMemory>> CoordinatorMemoryFromJson(absl::string_view text,
                                                                           absl::Time now,
                                                                           uint64_t* journal_id) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::DataLossError("the coordinator's memory is not JSON");
  int64_t version = 0;
  std::optional<CoordinatorMemory> memory;
  Reader reader(json, now);
  reader("version", version);
  if (reader.status().ok() && version > kVersion) {
    return absl::UnimplementedError(absl::StrCat("the coordinator's memory is of version ", version,
                                                 ", this release knows ", kVersion,
                                                 "; start the release that has written it"));
  }
  reader("memory", memory);
  uint64_t id = 0;
  reader.Optional("journal_id", id);
  if (journal_id != nullptr) *journal_id = id;
  if (!reader.status().ok()) {
    return absl::DataLossError(
        absl::StrCat("the coordinator's memory: ", reader.status().message()));
  }
  return memory;
}

}  // namespace lodestar
