// SPDX-License-Identifier: Apache-2.0

#include "server/host/shard_record_json.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/archive/forms.h"
#include "common/archive/json_archive.h"
#include "common/messages/contribution.h"
#include "common/messages/contribution_forms.h"
#include "common/runtime/status_macros.h"

namespace lodestar::host {
namespace {

using Step = shard::BucketStep::Kind;

constexpr absl::string_view kPlan = "plan";
constexpr absl::string_view kShadow = "shadow";
constexpr absl::string_view kNorm = "norm";
// Names of the steps. A StepRecord is stored with the name of its step as its kind.
constexpr NamedKind<Step> kStepNames[] = {{Step::kAccumulate, "accumulate"},
                                          {Step::kTakeWeights, "take_weights"},
                                          {Step::kApplyAlone, "apply_alone"},
                                          {Step::kSum, "sum"},
                                          {Step::kApply, "apply"},
                                          {Step::kSkip, "skip"}};

bool HasContribution(Step kind) {
  return kind == Step::kAccumulate || kind == Step::kTakeWeights || kind == Step::kApplyAlone ||
         kind == Step::kSkip;
}

// Two members of a BucketStep that are stored as one.
struct DelayedPart {
  optimizer::StepPart part;
  shard::DelayedStep::Memory after;
};

struct InJournal {
  template <typename Archive>
  static void Fields(Archive& archive, sync::RosterMember& member) {
    archive("worker", member.worker);
    archive("incarnation", member.incarnation);
    archive("num_samples", member.num_samples);
  }

  template <typename Archive>
  static void Fields(Archive& archive, sync::RoundPlan& plan) {
    archive.Note("kind", std::string(kPlan));
    archive("round", plan.round);
    archive("view", plan.view);
    archive("learning_rate", plan.learning_rate);
    archive("roster", archive::As<InJournal>(plan.roster));
  }

  template <typename Archive>
  static void Fields(Archive& archive, shard::ContributionKey& key) {
    archive("worker", key.worker);
    archive("incarnation", key.incarnation);
    archive("round", key.round);
    archive("base_version", key.base_version);
    archive("kind", archive::As<messages::ContributionKindForm>(key.kind));
    archive("scale", key.scale);
    archive("encoding", archive::As<messages::EncodingForm>(key.encoding));
    archive("num_samples", key.num_samples);
    archive.Sparse("learning_rate", key.learning_rate);
    archive.Sparse("weight", key.weight);
    archive.Sparse("state_vector", key.state_vector, 0u);
  }

  template <typename Archive>
  static void Fields(Archive& archive, DelayedPart& delayed) {
    archive("is_first", delayed.part.is_first);
    archive("is_last", delayed.part.is_last);
    archive("factor", delayed.part.factor);
    archive("rescale", delayed.part.rescale);
    archive("num_parts", delayed.after.num_parts);
    archive("arrived", delayed.after.arrived);
    archive("planned_weight", delayed.after.planned_weight);
    archive("arrived_weight", delayed.after.arrived_weight);
  }

  template <typename Archive>
  static void Fields(Archive& archive, shard::StepRecord& record) {
    shard::BucketStep& step = record.step;
    archive("kind", archive::As<archive::NameForm<kStepNames>>(step.kind));
    archive("bucket", record.bucket);
    archive("round", step.round);
    archive("weight", step.weight);
    archive("factor", step.factor);
    archive("rescale", step.rescale);
    archive("has_update", step.has_update);
    archive("step", step.call.step);
    archive("learning_rate", step.call.learning_rate);
    archive("gradient_scale", step.call.gradient_scale);
    if (HasContribution(step.kind)) archive("contribution", archive::As<InJournal>(record.key));
    archive.Sparse("norm", step.norm);
    archive.Sparse("clip", step.clip, 1.0f);
    if (archive.Has("delayed", step.delayed.has_value())) {
      DelayedPart delayed = {step.call.part, step.delayed.value_or(shard::DelayedStep::Memory())};
      archive("delayed", archive::As<InJournal>(delayed));
      if constexpr (Archive::kReads) {
        step.call.part = delayed.part;
        step.delayed = delayed.after;
      }
    }
  }

  template <typename Archive>
  static void Fields(Archive& archive, shard::ShadowRecord& shadow) {
    archive.Note("kind", std::string(kShadow));
    archive("bucket", shadow.bucket);
    archive("version", shadow.version);
  }

  template <typename Archive>
  static void Fields(Archive& archive, shard::NormRecord& norm) {
    archive.Note("kind", std::string(kNorm));
    archive("round", norm.round);
    archive("total_square_sum", norm.total_square_sum);
  }
};

template <typename Record>
absl::StatusOr<shard::ShardRecord> Read(const Json& json) {
  Record record;
  RETURN_IF_ERROR(archive::ReadRecord(json, archive::As<InJournal>(record)));
  return record;
}

}  // namespace

Json ShardRecordToJson(const shard::ShardRecord& record) {
  return std::visit([](const auto& one) { return archive::RecordToJsonAs<InJournal>(one); },
                    record);
}

absl::StatusOr<shard::ShardRecord> ShardRecordFromJson(const Json& json) {
  ASSIGN_OR_RETURN(const std::string kind, GetString(json, "kind"));
  if (kind == kPlan) return Read<sync::RoundPlan>(json);
  if (kind == kShadow) return Read<shard::ShadowRecord>(json);
  if (kind == kNorm) return Read<shard::NormRecord>(json);
  return Read<shard::StepRecord>(json);
}

}  // namespace lodestar::host
