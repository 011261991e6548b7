#include "server/coordinator/coordinator_memory_json.h"

#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
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

constexpr int64_t kWholeVersion = 1;
constexpr int64_t kChangesVersion = 2;

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
void Describe(Archive& archive, RoundTimes& times) {
  archive("compute", times.compute);
  archive("communication", times.communication);
  archive("wait", times.wait);
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
  archive.Optional("times", round.times);
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
  archive.Optional("worker_times", round.worker_times);
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
    status_ = InField(name, field == fields_.end() ? Refuse("there") : Read(*field, value));
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

  // Begins with a space, so that whoever knows the field puts its name before it.
  static absl::Status Refuse(absl::string_view wanted) {
    return absl::DataLossError(absl::StrCat(" is not ", wanted));
  }
  // Puts the field's name before what Refuse() says of it.
  static absl::Status InField(const char* name, const absl::Status& status) {
    if (status.ok()) return status;
    const absl::string_view wanted = status.message();
    return absl::DataLossError(
        absl::StrCat(name, absl::StartsWith(wanted, " ") ? "" : ".", wanted));
  }

 private:
  const Json& fields_;
  absl::Time now_;
  absl::Status status_;
};

// Collects the addresses of a structure's fields in the order in which Describe() names them, so
// that two values of one structure can be walked side by side.
class FieldAddresses {
 public:
  template <typename Value>
  void operator()(const char* /*name*/, Value& value) {
    addresses_.push_back(&value);
  }
  template <typename Value>
  void Optional(const char* name, Value& value) {
    (*this)(name, value);
  }
  // The next one, of which the caller knows the type.
  template <typename Value>
  Value& Next() {
    return *static_cast<Value*>(addresses_[next_++]);
  }

 private:
  std::vector<void*> addresses_;
  size_t next_ = 0;
};

template <typename Value>
concept Structure = requires(FieldAddresses& archive, Value& value) {
  Describe(archive, value);
};
// An entry of a list that is ascending by `id`, such as a WorkerRecord.
template <typename Value>
concept HasId = Structure<Value> && requires(Value& value) {
  value.id;
};

template <typename Key, typename Value>
const Key& KeyOf(const std::pair<const Key, Value>& entry) {
  return entry.first;
}
template <HasId Value>
const auto& KeyOf(const Value& entry) {
  return entry.id;
}
template <typename Key, typename Value>
Value& ValueOf(std::pair<const Key, Value>& entry) {
  return entry.second;
}
template <HasId Value>
Value& ValueOf(Value& entry) {
  return entry;
}

// Keys of the JSON that ChangeWriter makes of a map (or of a list of HasId), and of other lists.
constexpr char kGone[] = "gone";        // Keys.
constexpr char kNew[] = "new";          // Pairs of a key and a value; of a list: values.
constexpr char kChanged[] = "changed";  // Pairs of a key and the change of its value.
constexpr char kFrom[] = "from";        // The list begins with `keep` entries from this one on,
constexpr char kKeep[] = "keep";
constexpr char kEnd[] = "end";  // and ends, behind the new ones, with as many of the last ones.

// Makes JSON of what differs between two values of one type:
//   a structure: an object of the changes of its fields
//   an optional: [] if it is not set, [value], or the change of a structure that stays set
//   a map, a list: an object with the keys above
//   all else: the value
class ChangeWriter {
 public:
  explicit ChangeWriter(absl::Time now) : values_(now) {}

  // Returns null if both are the same. (No value above is null.)
  template <typename Value>
  Json Change(Value& before, Value& after) const {
    if constexpr (Structure<Value>) {
      FieldAddresses addresses;
      Describe(addresses, before);
      Walk walk(*this, std::move(addresses));
      Describe(walk, after);
      return std::move(walk.changes);
    } else {
      return before == after ? Json() : values_.Write(after);
    }
  }
  Json Change(double& before, double& after) const {
    return std::bit_cast<uint64_t>(before) == std::bit_cast<uint64_t>(after) ? Json()
                                                                             : values_.Write(after);
  }
  Json Change(Layout& before, Layout& after) const {
    return before.hash() == after.hash() ? Json() : values_.Write(after);
  }
  template <typename Value>
  Json Change(std::optional<Value>& before, std::optional<Value>& after) const {
    if (!after.has_value()) return before.has_value() ? Json::array() : Json();
    if (!before.has_value()) return Json::array({values_.Write(*after)});
    Json change = Change(*before, *after);
    if (Structure<Value> || change.is_null()) return change;
    return Json::array({std::move(change)});
  }
  template <typename Key, typename Value>
  Json Change(std::map<Key, Value>& before, std::map<Key, Value>& after) const {
    return ChangeOfKeyed<Value>(before, after);
  }
  template <HasId Value>
  Json Change(std::vector<Value>& before, std::vector<Value>& after) const {
    return ChangeOfKeyed<Value>(before, after);
  }
  template <typename Value>
  Json Change(std::vector<Value>& before, std::vector<Value>& after) const {
    const auto is_same = [this](Value& a, Value& b) { return Change(a, b).is_null(); };
    // What was appended, what was dropped in front, and what changed in the middle.
    size_t from = 0;
    if (!after.empty()) {
      while (from < before.size() && !is_same(before[from], after[0])) ++from;
    }
    if (from == before.size()) from = 0;
    size_t keep = 0;
    while (from + keep < before.size() && keep < after.size() &&
           is_same(before[from + keep], after[keep])) {
      ++keep;
    }
    if (from == 0 && keep == before.size() && keep == after.size()) return Json();
    size_t end = 0;
    while (end < before.size() - from - keep && end < after.size() - keep &&
           is_same(before[before.size() - 1 - end], after[after.size() - 1 - end])) {
      ++end;
    }
    Json added = Json::array();
    for (size_t i = keep; i < after.size() - end; ++i) added.push_back(values_.Write(after[i]));
    return {{kFrom, from}, {kKeep, keep}, {kNew, std::move(added)}, {kEnd, end}};
  }

 private:
  // The archive of the structure after, beside the fields of the one before.
  struct Walk {
    Walk(const ChangeWriter& writer, FieldAddresses fields)
        : writer(writer), before(std::move(fields)) {}

    template <typename Value>
    void operator()(const char* name, Value& after) {
      Json change = writer.Change(before.Next<Value>(), after);
      if (!change.is_null()) changes[name] = std::move(change);
    }
    template <typename Value>
    void Optional(const char* name, Value& after) {
      (*this)(name, after);
    }

    const ChangeWriter& writer;
    FieldAddresses before;
    Json changes;
  };

  template <typename Value, typename Container>
  Json ChangeOfKeyed(Container& before, Container& after) const {
    Json gone = Json::array();
    Json added = Json::array();
    Json changed = Json::array();
    const auto key_of = [this](auto& entry) {
      auto key = KeyOf(entry);
      return values_.Write(key);
    };
    auto was = before.begin();
    for (auto& entry : after) {
      while (was != before.end() && KeyOf(*was) < KeyOf(entry)) gone.push_back(key_of(*was++));
      Value& value = ValueOf(entry);
      if (was == before.end() || KeyOf(entry) < KeyOf(*was)) {
        added.push_back({key_of(entry), values_.Write(value)});
        continue;
      }
      Value& former = ValueOf(*was++);
      // Most are the same, and are not to be walked.
      if constexpr (std::equality_comparable<Value>) {
        if (former == value) continue;
      }
      Json change = Change(former, value);
      if (!change.is_null()) changed.push_back({key_of(entry), std::move(change)});
    }
    while (was != before.end()) gone.push_back(key_of(*was++));
    Json all;
    if (!gone.empty()) all[kGone] = std::move(gone);
    if (!added.empty()) all[kNew] = std::move(added);
    if (!changed.empty()) all[kChanged] = std::move(changed);
    return all;
  }

  Writer values_;
};

// Changes values as the JSON of ChangeWriter says.
class ChangeReader {
 public:
  explicit ChangeReader(absl::Time now) : values_(no_fields_, now) {}

  template <typename Value>
  absl::Status Apply(const Json& change, Value& value) const {
    if constexpr (Structure<Value>) {
      if (!change.is_object()) return Reader::Refuse("an object");
      Walk walk{*this, change, absl::OkStatus()};
      Describe(walk, value);
      return walk.status;
    } else {
      return values_.Read(change, value);
    }
  }
  template <typename Value>
  absl::Status Apply(const Json& change, std::optional<Value>& value) const {
    if (change.is_array()) {
      value.reset();
      return change.empty() ? absl::OkStatus() : values_.Read(change[0], value.emplace());
    }
    if (!Structure<Value> || !value.has_value()) return Reader::Refuse("a list");
    return Apply(change, *value);
  }
  template <typename Key, typename Value>
  absl::Status Apply(const Json& change, std::map<Key, Value>& values) const {
    if (!change.is_object()) return Reader::Refuse("an object");
    std::vector<Key> gone;
    RETURN_IF_ERROR(ReadPart(change, kGone, gone));
    for (const Key& key : gone) values.erase(key);
    // ChangeWriter gives each key once.
    std::map<Key, Value> added;
    RETURN_IF_ERROR(ReadPart(change, kNew, added));
    for (auto& [key, value] : added) values.insert_or_assign(key, std::move(value));
    const auto changed = change.find(kChanged);
    if (changed == change.end()) return absl::OkStatus();
    if (!changed->is_array()) return Reader::Refuse("a list");
    for (const Json& entry : *changed) {
      if (!entry.is_array() || entry.size() != 2) return Reader::Refuse("a list of pairs");
      Key key;
      RETURN_IF_ERROR(values_.Read(entry[0], key));
      const auto known = values.find(key);
      if (known == values.end()) return Reader::Refuse("a change of what is known");
      RETURN_IF_ERROR(Apply(entry[1], known->second));
    }
    return absl::OkStatus();
  }
  template <HasId Value>
  absl::Status Apply(const Json& change, std::vector<Value>& values) const {
    std::map<decltype(Value::id), Value> by_id;
    for (Value& value : values) {
      const auto id = value.id;
      by_id.emplace(id, std::move(value));
    }
    RETURN_IF_ERROR(Apply(change, by_id));
    values.clear();
    for (auto& [id, value] : by_id) values.push_back(std::move(value));
    return absl::OkStatus();
  }
  template <typename Value>
  absl::Status Apply(const Json& change, std::vector<Value>& values) const {
    if (!change.is_object()) return Reader::Refuse("an object");
    size_t from = 0;
    size_t keep = 0;
    size_t end = 0;
    std::vector<Value> added;
    RETURN_IF_ERROR(ReadPart(change, kFrom, from));
    RETURN_IF_ERROR(ReadPart(change, kKeep, keep));
    RETURN_IF_ERROR(ReadPart(change, kEnd, end));
    RETURN_IF_ERROR(ReadPart(change, kNew, added));
    if (from > values.size() || keep > values.size() - from || end > values.size() - from - keep) {
      return Reader::Refuse("a change of a list that is as long");
    }
    std::vector<Value> result;
    const auto move = [&result](auto first, auto last) {
      result.insert(result.end(), std::make_move_iterator(first), std::make_move_iterator(last));
    };
    move(values.begin() + from, values.begin() + from + keep);
    move(added.begin(), added.end());
    move(values.end() - end, values.end());
    values = std::move(result);
    return absl::OkStatus();
  }

 private:
  struct Walk {
    template <typename Value>
    void operator()(const char* name, Value& value) {
      if (!status.ok()) return;
      const auto change = changes.find(name);
      if (change != changes.end()) status = Reader::InField(name, reader.Apply(*change, value));
    }
    template <typename Value>
    void Optional(const char* name, Value& value) {
      (*this)(name, value);
    }

    const ChangeReader& reader;
    const Json& changes;
    absl::Status status;
  };

  template <typename Value>
  absl::Status ReadPart(const Json& change, const char* name, Value& value) const {
    const auto part = change.find(name);
    return part == change.end() ? absl::OkStatus()
                                : Reader::InField(name, values_.Read(*part, value));
  }

  const Json no_fields_ = Json::object();
  Reader values_;
};

// What peers have sent need not be UTF-8.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A record of the journal, whole or with changes.
struct ParsedRecord {
  Json json;
  uint64_t journal_id = 0;
  bool is_whole = false;
  absl::Duration since_whole;  // Between the last whole record and this one.
};

absl::StatusOr<ParsedRecord> ParseRecord(absl::string_view text) {
  ParsedRecord record;
  record.json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!record.json.is_object()) {
    return absl::DataLossError("the coordinator's memory is not JSON");
  }
  int64_t version = 0;
  Reader reader(record.json, absl::UnixEpoch());
  reader("version", version);
  if (reader.status().ok() && version > kChangesVersion) {
    return absl::UnimplementedError(absl::StrCat("the coordinator's memory is of version ", version,
                                                 ", this release knows ", kChangesVersion,
                                                 "; start the release that has written it"));
  }
  reader.Optional("journal_id", record.journal_id);
  reader.Optional("since_whole", record.since_whole);
  RETURN_IF_ERROR(reader.status());
  record.is_whole = version == kWholeVersion;
  return record;
}

// The same, with `what` before errors.
absl::Status InMemory(const absl::Status& status) {
  if (!absl::IsDataLoss(status)) return status;
  return absl::DataLossError(absl::StrCat("the coordinator's memory: ", status.message()));
}

absl::StatusOr<std::optional<CoordinatorMemory>> ReadRecords(absl::Span<const std::string> records,
                                                             absl::Time now, uint64_t& journal_id) {
  // The newest first.
  std::vector<ParsedRecord> parsed;
  do {
    if (parsed.size() == records.size()) return absl::DataLossError("no record of it is whole");
    ASSIGN_OR_RETURN(ParsedRecord record, ParseRecord(records[records.size() - 1 - parsed.size()]));
    parsed.push_back(std::move(record));
  } while (!parsed.back().is_whole);
  journal_id = parsed.front().journal_id;
  const absl::Time whole_at = now - parsed.front().since_whole;
  std::optional<CoordinatorMemory> memory;
  Reader whole(parsed.back().json, whole_at);
  whole("memory", memory);
  RETURN_IF_ERROR(whole.status());
  parsed.pop_back();
  for (; !parsed.empty(); parsed.pop_back()) {
    const ParsedRecord& record = parsed.back();
    const auto changes = record.json.find("changes");
    if (changes == record.json.end() || !memory.has_value()) {
      return absl::DataLossError("changes is not there, or has nothing to change");
    }
    const ChangeReader reader(whole_at + record.since_whole);
    RETURN_IF_ERROR(Reader::InField("changes", reader.Apply(*changes, *memory)));
  }
  return memory;
}

}  // namespace

std::string CoordinatorMemoryToJson(const std::optional<CoordinatorMemory>& memory, absl::Time now,
                                    uint64_t journal_id) {
  std::optional<CoordinatorMemory> copy = memory;
  Json json = {{"version", kWholeVersion}, {"memory", Writer(now).Write(copy)}};
  if (journal_id != 0) json["journal_id"] = journal_id;
  return Dump(json);
}

MemoryRecords::Record MemoryRecords::Next(std::optional<CoordinatorMemory> memory, absl::Time now,
                                          uint64_t journal_id, bool must_be_whole) {
  std::optional<CoordinatorMemory> before = std::exchange(last_, std::move(memory));
  if (must_be_whole || !before.has_value() || !last_.has_value()) {
    whole_at_ = now;
    return {CoordinatorMemoryToJson(last_, now, journal_id), /*is_whole=*/true};
  }
  absl::Duration since_whole = now - whole_at_;
  Json changes = ChangeWriter(now).Change(*before, *last_);
  Json json = {{"version", kChangesVersion},
               {"since_whole", Writer(now).Write(since_whole)},
               {"changes", changes.is_null() ? Json::object() : std::move(changes)}};
  if (journal_id != 0) json["journal_id"] = journal_id;
  return {Dump(json), /*is_whole=*/false};
}

absl::StatusOr<std::optional<CoordinatorMemory>> CoordinatorMemoryFromRecords(
    absl::Span<const std::string> records, absl::Time now, uint64_t* journal_id) {
  uint64_t id = 0;
  absl::StatusOr<std::optional<CoordinatorMemory>> memory = ReadRecords(records, now, id);
  if (journal_id != nullptr) *journal_id = id;
  if (!memory.ok()) return InMemory(memory.status());
  return memory;
}

}  // namespace lodestar
