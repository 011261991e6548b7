// SPDX-License-Identifier: Apache-2.0

#include "server/idle_flags.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/job_settings.h"

namespace lodestar::server {
namespace {

// Lists settings of this server that have no effect. IdleSettings() lists those of the job. Flags
// that neither function names always have an effect.
std::vector<job::IdleSetting> IdleServerSettings(const ServerConfig& config) {
  std::vector<job::IdleSetting> idle;
  if (config.network.listen.IsLoopback() && config.cluster.coordinator.empty() &&
      config.durability.journal_replica.empty() && !config.is_site() &&
      !config.has_remote_pages()) {
    idle.push_back({"insecure", "--listen or --http of an address that other machines reach"});
  }
  if (!config.network.http.has_value()) idle.push_back({"http_names", "--http"});
  if (!config.is_site()) {
    for (const char* const flag : {"upstream_join", "site_name"}) {
      idle.push_back({flag, "--upstream"});
    }
  }
  if (!config.uses_tls() || config.security.flags.has_own()) {
    idle.push_back({"certificate_ttl",
                    "certificates of the cluster's own authority (TLS without --tls_cert)"});
  }
  if (config.output.trace_path.empty()) idle.push_back({"trace_rounds", "--trace"});
  if (!config.durability.has_journal) {
    for (const char* const flag : {"journal_dir", "journal_limit", "journal_replica", "promote"}) {
      idle.push_back({flag, "--durability=journal"});
    }
  }
  if (!config.is_coordinator()) return idle;
  if (config.job.norm_limit == 0.0) {
    idle.push_back({"poison_limit", "--norm_limit other than 0"});
  }
  if (config.divergence.action != faults::DivergenceAction::kRollback) {
    idle.push_back({"rollback_lr_factor", "--on_divergence=rollback"});
    idle.push_back({"max_rollbacks", "--on_divergence=rollback"});
  }
  const DurabilityConfig& durability = config.durability;
  if (durability.checkpoint_dir.empty()) {
    for (const char* const flag : {"checkpoint_every", "checkpoint_interval", "checkpoint_keep",
                                   "fallback_dir", "on_checkpoint", "accept_loss"}) {
      idle.push_back({flag, "--checkpoint_dir"});
    }
    if (durability.resume != ResumePolicy::kPath) {
      idle.push_back({"resume", "--checkpoint_dir or a checkpoint (--resume=PATH)"});
      idle.push_back({"accept_higher_rate", "--checkpoint_dir"});
    }
  }
  if (durability.checkpoint_dir.empty() || durability.checkpoint_interval == absl::ZeroDuration()) {
    idle.push_back({"checkpoint_cost", "--checkpoint_dir and --checkpoint_interval"});
  }
  return idle;
}

}  // namespace

absl::Status CheckNoneIsIdle(const std::set<std::string>& given, const ServerConfig& config) {
  std::vector<job::IdleSetting> idle = IdleServerSettings(config);
  if (config.is_coordinator()) {
    const std::vector<job::IdleSetting> of_job = job::IdleSettings(config.job);
    idle.insert(idle.end(), of_job.begin(), of_job.end());
  }
  std::vector<std::string> refused;
  for (const job::IdleSetting& setting : idle) {
    if (given.count(setting.flag) == 0) continue;
    refused.push_back(
        absl::StrCat("--", setting.flag, " has no effect without ", setting.counts_with));
  }
  if (refused.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(absl::StrJoin(refused, "; "), ". Give what is missing, or leave the flag out"));
}

}  // namespace lodestar::server
