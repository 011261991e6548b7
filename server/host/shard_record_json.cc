#include "server/host/shard_record_json.h"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/contribution.h"
#include "common/encoding.h"
#include "common/overloaded.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

using Step = BucketStep::Kind;

template <typename Kind>
using Names = std::vector<std::pair<Kind, absl::string_view>>;

const Names<Step>& StepNames() {
  static const auto& names = *new Names<Step>{{Step::kAccumulate, "accumulate"},
                                              {Step::kTakeWeights, "take_weights"},
                                              {Step::kApplyAlone, "apply_alone"},
                                              {Step::kSum, "sum"},
                                              {Step::kApply, "apply"},
                                              {Step::kSkip, "skip"}};
  return names;
}

const Names<ContributionKind>& ContributionNames() {
  static const auto& names =
      *new Names<ContributionKind>{{ContributionKind::kGradient, "gradient"},
                                   {ContributionKind::kWeights, "weights"},
                                   {ContributionKind::kPseudoGradient, "pseudo_gradient"},
                                   {ContributionKind::kInitialWeights, "initial_weights"}};
  return names;
}

template <typename Kind>
std::string NameOf(const Names<Kind>& names, Kind wanted) {
  for (const auto& [kind, name] : names) {
    if (kind == wanted) return std::string(name);
  }
  return "";
}

template <typename Kind>
absl::StatusOr<Kind> Named(const Names<Kind>& names, const Json& object, absl::string_view key) {
  ASSIGN_OR_RETURN(const std::string text, GetString(object, key));
  for (const auto& [kind, name] : names) {
    if (name == text) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat(key, " \"", text, "\" is not known"));
}

absl::StatusOr<uint32_t> GetUint32(const Json& object, absl::string_view key) {
  ASSIGN_OR_RETURN(const uint64_t value, GetUint64(object, key));
  if (value <= std::numeric_limits<uint32_t>::max()) return static_cast<uint32_t>(value);
  return absl::InvalidArgumentError(absl::StrCat(key, " is ", value, ", which is too much"));
}

absl::StatusOr<float> GetFloat(const Json& object, absl::string_view key) {
  ASSIGN_OR_RETURN(const double value, GetDouble(object, key));
  if (std::abs(value) <= std::numeric_limits<float>::max()) return static_cast<float>(value);
  return absl::InvalidArgumentError(absl::StrCat(key, " is ", value, ", which no float holds"));
}

bool HasContribution(Step kind) {
  return kind == Step::kAccumulate || kind == Step::kTakeWeights || kind == Step::kApplyAlone ||
         kind == Step::kSkip;
}

Json KeyToJson(const ContributionKey& key) {
  return {{"worker", key.worker.value()},
          {"incarnation", key.incarnation.value()},
          {"round", key.round.value()},
          {"base_version", key.base_version.value()},
          {"kind", NameOf(ContributionNames(), key.kind)},
          {"scale", key.scale},
          {"encoding", EncodingText(key.encoding)},
          {"num_samples", key.num_samples}};
}

absl::StatusOr<ContributionKey> KeyFromJson(const Json& json) {
  ContributionKey key;
  ASSIGN_OR_RETURN(const uint32_t worker, GetUint32(json, "worker"));
  ASSIGN_OR_RETURN(const uint64_t incarnation, GetUint64(json, "incarnation"));
  ASSIGN_OR_RETURN(const int64_t round, GetInt64(json, "round"));
  ASSIGN_OR_RETURN(const int64_t base_version, GetInt64(json, "base_version"));
  key.worker = WorkerId(worker);
  key.incarnation = Incarnation(incarnation);
  key.round = Round(round);
  key.base_version = Version(base_version);
  ASSIGN_OR_RETURN(key.kind, Named(ContributionNames(), json, "kind"));
  ASSIGN_OR_RETURN(key.scale, GetFloat(json, "scale"));
  ASSIGN_OR_RETURN(const std::string encoding, GetString(json, "encoding"));
  ASSIGN_OR_RETURN(key.encoding, ParseEncodingText("encoding", encoding));
  ASSIGN_OR_RETURN(key.num_samples, GetInt64(json, "num_samples"));
  return key;
}

Json DelayedToJson(const StepPart& part, const DelayedStep::Memory& after) {
  return {{"is_first", part.is_first},
          {"is_last", part.is_last},
          {"factor", part.factor},
          {"rescale", part.rescale},
          {"num_parts", after.num_parts},
          {"arrived", after.arrived},
          {"planned_weight", after.planned_weight},
          {"arrived_weight", after.arrived_weight}};
}

absl::Status ReadDelayed(const Json& json, BucketStep& step) {
  ASSIGN_OR_RETURN(const Json* const delayed, GetObject(json, "delayed"));
  StepPart& part = step.call.part;
  ASSIGN_OR_RETURN(part.is_first, GetBool(*delayed, "is_first"));
  ASSIGN_OR_RETURN(part.is_last, GetBool(*delayed, "is_last"));
  ASSIGN_OR_RETURN(part.factor, GetFloat(*delayed, "factor"));
  ASSIGN_OR_RETURN(part.rescale, GetFloat(*delayed, "rescale"));
  DelayedStep::Memory after;
  ASSIGN_OR_RETURN(after.num_parts, GetInt64(*delayed, "num_parts"));
  ASSIGN_OR_RETURN(after.arrived, GetInt64(*delayed, "arrived"));
  ASSIGN_OR_RETURN(after.planned_weight, GetInt64(*delayed, "planned_weight"));
  ASSIGN_OR_RETURN(after.arrived_weight, GetInt64(*delayed, "arrived_weight"));
  step.delayed = after;
  return absl::OkStatus();
}

Json StepToJson(const StepRecord& record) {
  const BucketStep& step = record.step;
  Json json = {{"kind", NameOf(StepNames(), step.kind)},
               {"bucket", record.bucket},
               {"round", step.round.value()},
               {"weight", step.weight},
               {"factor", step.factor},
               {"rescale", step.rescale},
               {"has_update", step.has_update},
               {"step", step.call.step},
               {"learning_rate", step.call.learning_rate},
               {"gradient_scale", step.call.gradient_scale}};
  if (HasContribution(step.kind)) json["contribution"] = KeyToJson(record.key);
  if (step.norm.has_value()) json["norm"] = *step.norm;
  if (step.clip != 1.0f) json["clip"] = step.clip;
  if (step.delayed.has_value()) json["delayed"] = DelayedToJson(step.call.part, *step.delayed);
  return json;
}

absl::StatusOr<StepRecord> StepFromJson(const Json& json) {
  StepRecord record;
  BucketStep& step = record.step;
  ASSIGN_OR_RETURN(step.kind, Named(StepNames(), json, "kind"));
  ASSIGN_OR_RETURN(record.bucket, GetUint32(json, "bucket"));
  ASSIGN_OR_RETURN(const int64_t round, GetInt64(json, "round"));
  step.round = Round(round);
  ASSIGN_OR_RETURN(step.weight, GetInt64(json, "weight"));
  ASSIGN_OR_RETURN(step.factor, GetFloat(json, "factor"));
  ASSIGN_OR_RETURN(step.rescale, GetFloat(json, "rescale"));
  ASSIGN_OR_RETURN(step.has_update, GetBool(json, "has_update"));
  ASSIGN_OR_RETURN(step.call.step, GetInt64(json, "step"));
  ASSIGN_OR_RETURN(step.call.learning_rate, GetDouble(json, "learning_rate"));
  ASSIGN_OR_RETURN(step.call.gradient_scale, GetFloat(json, "gradient_scale"));
  if (HasContribution(step.kind)) {
    ASSIGN_OR_RETURN(const Json* const key, GetObject(json, "contribution"));
    ASSIGN_OR_RETURN(record.key, KeyFromJson(*key));
  }
  // Where norms are watched, which earlier releases did not.
  if (json.contains("norm")) {
    ASSIGN_OR_RETURN(step.norm, GetDouble(json, "norm"));
  }
  if (json.contains("clip")) {
    ASSIGN_OR_RETURN(step.clip, GetFloat(json, "clip"));
  }
  if (json.contains("delayed")) RETURN_IF_ERROR(ReadDelayed(json, step));
  return record;
}

Json PlanToJson(const RoundPlan& plan) {
  Json roster = Json::array();
  for (const RosterMember& member : plan.roster) {
    roster.push_back({{"worker", member.worker.value()},
                      {"incarnation", member.incarnation.value()},
                      {"num_samples", member.num_samples}});
  }
  return {{"kind", "plan"},
          {"round", plan.round.value()},
          {"view", plan.view.value()},
          {"learning_rate", plan.learning_rate},
          {"roster", std::move(roster)}};
}

absl::StatusOr<RoundPlan> PlanFromJson(const Json& json) {
  RoundPlan plan;
  ASSIGN_OR_RETURN(const int64_t round, GetInt64(json, "round"));
  ASSIGN_OR_RETURN(const uint64_t view, GetUint64(json, "view"));
  plan.round = Round(round);
  plan.view = ViewId(view);
  ASSIGN_OR_RETURN(plan.learning_rate, GetDouble(json, "learning_rate"));
  ASSIGN_OR_RETURN(const Json* const roster, GetArray(json, "roster"));
  for (const Json& entry : *roster) {
    RosterMember member;
    ASSIGN_OR_RETURN(const uint32_t worker, GetUint32(entry, "worker"));
    ASSIGN_OR_RETURN(const uint64_t incarnation, GetUint64(entry, "incarnation"));
    member.worker = WorkerId(worker);
    member.incarnation = Incarnation(incarnation);
    ASSIGN_OR_RETURN(member.num_samples, GetInt64(entry, "num_samples"));
    plan.roster.push_back(member);
  }
  return plan;
}

}  // namespace

Json ShardRecordToJson(const ShardRecord& record) {
  return std::visit(Overloaded{
                        [](const RoundPlan& plan) { return PlanToJson(plan); },
                        [](const StepRecord& step) { return StepToJson(step); },
                        [](const ShadowRecord& shadow) {
                          return Json{{"kind", "shadow"},
                                      {"bucket", shadow.bucket},
                                      {"version", shadow.version.value()}};
                        },
                        [](const NormRecord& norm) {
                          return Json{{"kind", "norm"},
                                      {"round", norm.round.value()},
                                      {"total_square_sum", norm.total_square_sum}};
                        },
                    },
                    record);
}

absl::StatusOr<ShardRecord> ShardRecordFromJson(const Json& json) {
  ASSIGN_OR_RETURN(const std::string kind, GetString(json, "kind"));
  if (kind == "plan") return PlanFromJson(json);
  if (kind == "shadow") {
    ASSIGN_OR_RETURN(const uint32_t bucket, GetUint32(json, "bucket"));
    ASSIGN_OR_RETURN(const int64_t version, GetInt64(json, "version"));
    return ShadowRecord{.bucket = bucket, .version = Version(version)};
  }
  if (kind == "norm") {
    ASSIGN_OR_RETURN(const int64_t round, GetInt64(json, "round"));
    ASSIGN_OR_RETURN(const double total, GetDouble(json, "total_square_sum"));
    return NormRecord{Round(round), total};
  }
  return StepFromJson(json);
}

}  // namespace lodestar
