#include "server/idle_flags.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace lodestar {
namespace {

// When the flags of a row count. Every flag of ps_server that is in no row always does.
struct Condition {
  std::vector<absl::string_view> flags;
  absl::string_view counts_with;
  bool is_met = true;
};

std::vector<Condition> ConditionsOnEveryServer(const ServerConfig& config) {
  return {
      {{"insecure"},
       "--listen of an address that other machines reach",
       !config.network.listen.IsLoopback()},
      {{"trace_rounds"}, "--trace", !config.output.trace_path.empty()},
  };
}

std::vector<Condition> ConditionsOnCoordinator(const ServerConfig& config) {
  const JobSpec& job = config.job;
  const OptimizerKind optimizer = job.optimizer.kind;
  const bool is_local = job.mode == Mode::kLocalSgd;
  const bool saves = !config.durability.checkpoint_dir.empty();
  return {
      {{"quorum"}, "--mode=sync", job.mode == Mode::kSync},
      {{"max_rounds_ahead", "staleness_scaling"}, "--mode=async", job.mode == Mode::kAsync},
      {{"local_steps", "outer_optimizer"}, "--mode=local_sgd", is_local},
      {{"outer_learning_rate", "outer_momentum"},
       "--mode=local_sgd --outer_optimizer=nesterov",
       is_local && job.outer_optimizer == OuterOptimizerKind::kNesterov},
      {{"error_feedback"},
       "--push_encoding or --pull_encoding other than fp32",
       job.push_encoding != Encoding::kFp32 || job.pull_encoding != Encoding::kFp32},
      {{"momentum"},
       "--optimizer=momentum or nesterov",
       optimizer == OptimizerKind::kMomentum || optimizer == OptimizerKind::kNesterov},
      {{"beta1", "beta2", "epsilon"}, "--optimizer=adamw", optimizer == OptimizerKind::kAdamW},
      {{"min_learning_rate"},
       "--lr_schedule=cosine or linear",
       job.schedule.kind != ScheduleKind::kConstant},
      {{"rollback_lr_factor", "max_rollbacks"},
       "--on_divergence=rollback",
       config.divergence.action == DivergenceAction::kRollback},
      {{"checkpoint_every", "checkpoint_interval", "checkpoint_keep", "fallback_dir"},
       "--checkpoint_dir",
       saves},
      {{"checkpoint_cost"},
       "--checkpoint_dir and --checkpoint_interval",
       saves && config.durability.checkpoint_interval > absl::ZeroDuration()},
      {{"resume"},
       "--checkpoint_dir, or with the path of a checkpoint",
       saves || config.durability.resume == ResumePolicy::kPath},
  };
}

}  // namespace

absl::Status CheckNoneIsIdle(const std::set<std::string>& given, const ServerConfig& config) {
  std::vector<Condition> conditions = ConditionsOnEveryServer(config);
  if (config.is_coordinator()) {
    const std::vector<Condition> more = ConditionsOnCoordinator(config);
    conditions.insert(conditions.end(), more.begin(), more.end());
  }
  std::vector<std::string> idle;
  for (const Condition& condition : conditions) {
    if (condition.is_met) continue;
    for (const absl::string_view flag : condition.flags) {
      if (given.count(std::string(flag)) == 0) continue;
      idle.push_back(
          absl::StrCat("--", flag, " has no effect: it counts with ", condition.counts_with));
    }
  }
  if (idle.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(absl::StrJoin(idle, "; "), ". Give that, or leave it out"));
}

}  // namespace lodestar
