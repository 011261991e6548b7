// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/model/job_model.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/checkpoints/same_tensors.h"
#include "common/job/fragment_plan.h"
#include "common/params/bucket_plan.h"
#include "common/params/model_spec_json.h"
#include "common/params/shard_plan.h"
#include "common/runtime/status_macros.h"

namespace lodestar::model {
namespace {

struct LayoutPlan {
  std::vector<params::ElementRange> shards;
  std::vector<params::Bucket> buckets;
};

absl::StatusOr<LayoutPlan> PlanLayout(const params::Layout& layout, int num_shards,
                                      int64_t bucket_bytes) {
  LayoutPlan plan;
  ASSIGN_OR_RETURN(plan.shards, params::PlanShards(layout, num_shards));
  ASSIGN_OR_RETURN(plan.buckets, params::PlanBuckets(layout, plan.shards, bucket_bytes));
  return plan;
}

Proposal Refused(ModelRefusal refusal) {
  return {.kind = Proposal::Kind::kRefused, .refusal = std::move(refusal)};
}

}  // namespace

JobModel::JobModel(Config config)
    : config_(std::move(config)), job_(config_.job), awaits_settings_(is_client_model()) {}

absl::StatusOr<JobModel> JobModel::Create(Config config) {
  JobModel model(std::move(config));
  if (model.is_client_model()) return model;
  const job::JobSpec& job = model.job_;
  ASSIGN_OR_RETURN(model.layout_, params::BuildLayout(job.model));
  ASSIGN_OR_RETURN(const LayoutPlan plan,
                   PlanLayout(*model.layout_, model.config_.room.num_shards, job.bucket_bytes));
  RETURN_IF_ERROR(job::FragmentPlan(plan.buckets, job.fragments).CheckComplete());
  return model;
}

JobModel::Memory JobModel::memory() const {
  Memory memory = {.settings = job::JobSettings(job_),
                   .spec = params::ModelSpecToJson(job_.model),
                   .layout_hash = layout_->hash(),
                   .map_version = map_->version,
                   .awaits_settings = awaits_settings_,
                   .supply = supply_.memory()};
  if (is_client_model()) memory.layout = layout_;
  return memory;
}

absl::Status JobModel::Resume(Memory memory, const std::vector<std::string>& addresses,
                              absl::Time now) {
  job_ = JobOf(memory, config_.job, config_.given, config_.open_settings);
  if (config_.open_settings.any()) tuning_.EndWithSettingsOf(ExchangeOrigin::kJournal);
  awaits_settings_ = memory.awaits_settings;
  const bool has_layout = memory.layout.has_value();
  if (has_layout) layout_ = std::move(memory.layout);
  if (!layout_.has_value())
    return absl::DataLossError(
        "the coordinator's journal lacks the layout of the model, which a program gave to this "
        "job");
  if (!has_layout && memory.layout_hash != layout_->hash()) {
    // The journals of the shards may be of an earlier release. Their rounds use its layout.
    ASSIGN_OR_RETURN(params::Layout earlier, params::BuildEarlierLayout(job_.model));
    if (!memory.layout_hash.empty() && memory.layout_hash != earlier.hash()) {
      return absl::DataLossError(absl::StrCat(
          "the model's layout in the coordinator's journal has hash ", memory.layout_hash,
          ", but this release builds layout ", layout_->hash(), ", and earlier releases built ",
          earlier.hash(), ". Start the release that wrote the journal"));
    }
    layout_ = std::move(earlier);
  }
  RETURN_IF_ERROR(PlanMap(memory.map_version, addresses));
  supply_.Resume(memory.supply, now);
  return absl::OkStatus();
}

bool JobModel::is_client_model() const {
  return std::holds_alternative<params::ClientModelSpec>(job_.model.architecture);
}

std::optional<ModelRefusal> JobModel::CheckOffered(const messages::RegisterCall& call) const {
  const absl::Status same =
      call.adopts_order
          ? checkpoints::CheckSameTensors(*layout_, "the job", *call.layout, "this client")
          : params::CheckSameLayout(*layout_, "the job", *call.layout, "this client");
  if (same.ok()) return std::nullopt;
  return ModelRefusal{.kind = call.adopts_order ? ModelRefusal::Kind::kOtherTensors
                                                : ModelRefusal::Kind::kOtherLayout,
                      .cause = same};
}

std::optional<ModelRefusal> JobModel::CheckLayoutHash(absl::string_view hash) const {
  if (hash == layout_->hash()) return std::nullopt;
  return ModelRefusal{.kind = ModelRefusal::Kind::kLayoutHash, .subject = std::string(hash)};
}

std::optional<ModelRefusal> JobModel::CheckEncodings(
    const std::vector<params::Encoding::Kind>& known) const {
  for (const auto& [encoding, flag] : {std::pair(job_.push_encoding, "push_encoding"),
                                       std::pair(job_.pull_encoding, "pull_encoding")}) {
    if (std::find(known.begin(), known.end(), encoding.kind()) == known.end()) {
      return ModelRefusal{.kind = ModelRefusal::Kind::kEncoding, .subject = flag, .known = known};
    }
  }
  return std::nullopt;
}

Proposal JobModel::SettleWith(const messages::RegisterCall& call,
                              const params::Layout& layout) const {
  job::SettledJob settled = job::Settle(config_.job, config_.given, call.proposed);
  absl::Status possible = job::ValidateJobSpec(settled.job);
  possible.Update(faults::CheckFits(config_.divergence, settled.job));
  if (!possible.ok()) {
    return Refused({.kind = ModelRefusal::Kind::kSettings, .cause = possible});
  }
  std::optional<ModelRefusal> refusal = CheckClientLayout(config_.room, settled.job, layout);
  if (refusal.has_value()) return Refused(*std::move(refusal));
  return {.kind = Proposal::Kind::kAnother, .settled = std::move(settled)};
}

Proposal JobModel::Judge(const messages::RegisterCall& call, absl::Time now) const {
  if (!layout_.has_value()) {
    if (!call.layout.has_value()) return Refused({.kind = ModelRefusal::Kind::kLacksLayout});
    Proposal first = SettleWith(call, *call.layout);
    first.has_other_layout = true;
    return first;
  }
  const bool is_anothers_turn =
      !awaits_settings_ && proposer_.has_value() && proposer_->instance_id != call.instance_id;
  if (!awaits_settings_ && !is_anothers_turn) return {};
  const bool is_other_layout = call.layout.has_value() && CheckOffered(call).has_value();
  Proposal proposal = SettleWith(call, is_other_layout ? *call.layout : *layout_);
  proposal.has_other_layout = is_other_layout;
  if (proposal.kind == Proposal::Kind::kAnother && !is_other_layout &&
      job::JobSettings(proposal.settled.job) == job::JobSettings(job_)) {
    proposal.kind = Proposal::Kind::kSame;
  }
  if (!is_anothers_turn) return proposal;
  if (proposal.kind != Proposal::Kind::kAnother) return {};
  if (now < proposer_->until) {
    return Refused({.kind = ModelRefusal::Kind::kAwaitsOther, .subject = proposer_->name});
  }
  return proposal;
}

void JobModel::Take(const messages::RegisterCall& call, const Proposal& proposal, absl::Time now) {
  if (proposal.has_other_layout) layout_ = call.layout;
  awaits_settings_ = false;
  proposer_ = {call.name, call.instance_id, now + config_.caller_patience};
  job_ = proposal.settled.job;
}

bool JobModel::ClaimSupply(const messages::WorkerLife& life, absl::Time now) {
  const bool is_supplier = supply_.Claim(life, now);
  if (is_supplier) proposer_.reset();
  return is_supplier;
}

bool JobModel::OnEnded(const messages::WorkerLife& life) {
  tuning_.OnEnded(life.worker);
  const bool is_supplier_lost = supply_.OnEnded(life.incarnation);
  awaits_settings_ |= is_supplier_lost;
  return is_supplier_lost;
}

bool JobModel::IsTrialOver(const std::vector<WorkerId>& members, int64_t max_roster) const {
  if (!tuning_.is_measuring()) return false;
  const int64_t num_measured =
      std::count_if(members.begin(), members.end(),
                    [this](WorkerId member) { return tuning_.HasMeasured(member); });
  const auto num_members = static_cast<int64_t>(members.size());
  // A round gives work to at most max_roster members. Any further members may have nothing to
  // measure.
  return num_members >= job_.min_workers && num_measured >= std::min(num_members, max_roster);
}

absl::Status JobModel::ChooseExchange() {
  ASSIGN_OR_RETURN(
      ExchangeTuning::Choice choice,
      tuning_.Choose(config_.job, config_.open_settings, *layout_, config_.room.num_shards));
  job_ = choice.job;
  tuning_.End(std::move(choice));
  return absl::OkStatus();
}

absl::Status JobModel::Restore(RestoredModel restored) {
  if (restored.job.has_value()) job_ = *std::move(restored.job);
  if (restored.is_from_checkpoint) {
    if (config_.open_settings.any()) tuning_.EndWithSettingsOf(ExchangeOrigin::kCheckpoint);
    awaits_settings_ = false;
  } else if (config_.open_settings.any() &&
             (tuning_.is_measuring() || tuning_.origin() == ExchangeOrigin::kFlags)) {
    tuning_.Begin();
    job_ = job::TrialOf(config_.job);
  }
  if (!restored.layout.has_value()) return absl::OkStatus();
  if (!layout_.has_value() || is_client_model()) {
    layout_ = std::move(restored.layout);
    return absl::OkStatus();
  }
  // The present layout may be that of an earlier release, if the job has continued from a journal
  // of that release. From now on, the job uses the layout of this release.
  ASSIGN_OR_RETURN(layout_, params::BuildLayout(job_.model));
  return params::TransposedBetween(*layout_, "the job", *restored.layout, "the weights on disk")
      .status();
}

void JobModel::BeginFrom(shards::WeightsSource source, std::optional<ResumeSnapshot> resumed) {
  source_ = std::move(source);
  supply_.Begin(std::holds_alternative<shards::ClientSource>(source_));
  resumed_ = std::move(resumed);
}

absl::Status JobModel::PlanMap(uint64_t version, const std::vector<std::string>& addresses) {
  ASSIGN_OR_RETURN(LayoutPlan plan,
                   PlanLayout(*layout_, config_.room.num_shards, job_.bucket_bytes));
  auto map = std::make_shared<messages::ClusterMap>();
  map->version = version;
  map->layout = *layout_;
  map->buckets = std::move(plan.buckets);
  for (int i = 0; i < config_.room.num_shards; ++i) {
    map->servers.push_back({i, addresses[i], plan.shards[i]});
  }
  map_ = std::move(map);
  return absl::OkStatus();
}

absl::Status JobModel::MoveServers(const std::vector<std::string>& addresses, absl::Time now) {
  const auto at_least = static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixMillis(now), 0));
  return PlanMap(std::max(map_->version + 1, at_least), addresses);
}

job::JobSpec JobOf(const JobModel::Memory& memory, const job::JobSpec& asked,
                   const std::set<std::string>& given, const job::OpenSettings& open) {
  if (std::holds_alternative<params::ClientModelSpec>(asked.model.architecture)) {
    return job::Settle(asked, given, job::ProposedBySaved(memory.settings)).job;
  }
  if (!open.any()) return asked;
  const absl::StatusOr<job::JobSpec> chosen = job::WithExchangeOf(memory.settings, asked);
  if (!chosen.ok()) return asked;
  const job::JobSpec job = job::InRounds(job::WithOpenOf(*chosen, asked, open), open);
  return job::ValidateJobSpec(job).ok() ? job : asked;
}

bool IsOfEarlierLayout(const JobModel::Memory& memory, const job::JobSpec& job) {
  if (memory.layout.has_value()) return false;
  const absl::StatusOr<params::Layout> layout = params::BuildLayout(job.model);
  const absl::StatusOr<params::Layout> earlier = params::BuildEarlierLayout(job.model);
  return layout.ok() && earlier.ok() && layout->hash() != earlier->hash() &&
         memory.layout_hash != layout->hash();
}

}  // namespace lodestar::model
