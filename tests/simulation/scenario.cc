// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/scenario.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/messages/cluster_messages.h"
#include "common/params/layout.h"
#include "common/runtime/check.h"
#include "server/site/site_job.h"

namespace lodestar::simulation {
namespace {

constexpr params::Encoding kPullEncodings[] = {params::Encoding::kFp32, params::Encoding::kFp32,
                                               params::Encoding::kFp32, params::Encoding::kBf16,
                                               params::Encoding::kInt8, params::Encoding::kInt4};
// Top-k leaves out most of the elements of a bucket with 16 elements.
constexpr params::Encoding kPushEncodings[] = {
    params::Encoding::kFp32,      params::Encoding::kFp32,     params::Encoding::kFp32,
    params::Encoding::kBf16,      params::Encoding::kInt8,     params::Encoding::kInt4,
    params::Encoding::TopK(5, 2), params::Encoding::TopK(3, 4)};

std::string ModeText(const job::JobSpec& job) {
  const std::string by_speed = job.balance == job::Balance::kSpeed ? " by speed" : "";
  switch (job.mode) {
    case job::Mode::kSync:
      return absl::StrCat("sync", job.quorum > 0 ? absl::StrCat(" with quorum ", job.quorum) : "",
                          by_speed);
    case job::Mode::kAsync:
      return absl::StrCat("async at most ", job.max_rounds_ahead, " ahead");
    case job::Mode::kLocalSgd:
      return absl::StrCat("local_sgd ", NameOf(job.outer_optimizer), " H=", job.local_steps,
                          job.fragments > 1 ? absl::StrCat(" fragments=", job.fragments) : "",
                          job.overlap_steps > 0 ? absl::StrCat(" tau=", job.overlap_steps) : "",
                          job.overlap_rounds ? " eager" : "",
                          job::AveragesDirections(job) ? " of mean directions" : "", by_speed);
    case job::Mode::kAsyncLocalSgd:
      return absl::StrCat(
          "async_local_sgd ", NameOf(job.outer_optimizer), " H=", job.local_steps, " at most ",
          job.max_rounds_ahead, " ahead and ", job.max_staleness, " stale",
          job.momentum_correction == job::MomentumCorrectionKind::kHeloco ? " corrected" : "",
          job.anchor == job::Anchor::kServer ? " anchored at the servers" : "", by_speed);
  }
  return "";
}

std::string ScheduleText(const checkpoints::CheckpointSchedule::Config& schedule) {
  return schedule.every_rounds > 0 ? absl::StrCat(schedule.every_rounds, " rounds")
                                   : absl::FormatDuration(schedule.interval);
}

// Chooses how exchanges overlap with steps. The simulation does not see the weights that workers
// compute. The contents and times of their messages do not depend on those weights.
void ChooseOverlap(Chance& chance, job::JobSpec& job) {
  if (job.outer_optimizer != job::OuterOptimizerKind::kAverage && chance.OneIn(3)) {
    job.overlap_rounds = true;
    return;
  }
  job.fragments = static_cast<int>(chance.Between(1, 2));
  const int least = job.fragments == 1 ? 1 : 0;
  job.overlap_steps = static_cast<int>(chance.Between(least, job.local_steps / job.fragments));
}

void ChooseAsyncLocalSgd(Chance& chance, job::JobSpec& job) {
  const int bounds[] = {-1, -1, 1, 3};
  const int64_t oldest[] = {-1, -1, 0, 2};
  job.mode = job::Mode::kAsyncLocalSgd;
  job.staleness_scaling = job::StalenessScaling::kNone;
  job.local_steps = static_cast<int>(chance.Between(1, 4));
  job.max_rounds_ahead = chance.Of(bounds);
  job.max_staleness = chance.Of(oldest);
  // The audit can tell neither how many contributions a step has, which depends on the members at
  // its beginning, nor their order, which changes the momentum: see BucketAudit.
  job.quorum = 1;
  job.outer_optimizer = job::OuterOptimizerKind::kSgd;
  job.outer_learning_rate = 0.5;
}

void ChooseOuterStep(Chance& chance, job::JobSpec& job) {
  if (chance.OneIn(2)) {
    job.outer_optimizer = job::OuterOptimizerKind::kNesterov;
    job.outer_momentum = 0.5;
    // Momentum correction needs contributions of whole numbers. Encoded contributions are often
    // nearly at right angles to the momentum, and then rounding decides on which side of 90 degrees
    // they are.
    if (job.push_encoding == params::Encoding::kFp32 && chance.OneIn(2)) {
      job.momentum_correction = job::MomentumCorrectionKind::kHeloco;
    }
  }
  const bool is_exact =
      job.push_encoding == params::Encoding::kFp32 && job.pull_encoding == params::Encoding::kFp32;
  if (is_exact && chance.OneIn(2)) job.anchor = job::Anchor::kServer;
}

void ChooseMode(Chance& chance, int num_workers, job::JobSpec& job) {
  job.optimizer.kind = chance.OneIn(3) ? job::OptimizerKind::kMomentum : job::OptimizerKind::kSgd;
  job.optimizer.momentum = 0.5;
  switch (chance.Below(6)) {
    case 0:
    case 1:
      job.mode = job::Mode::kSync;
      break;
    case 2:
      job.mode = job::Mode::kSync;
      job.quorum = static_cast<int>(chance.Between(1, num_workers));
      break;
    case 3: {
      const int bounds[] = {-1, 0, 1, 3};
      job.mode = job::Mode::kAsync;
      job.max_rounds_ahead = chance.Of(bounds);
      if (chance.OneIn(2)) job.staleness_scaling = job::StalenessScaling::kInverse;
      // The audit cannot tell the order of contributions here, which changes the momentum: see
      // BucketAudit.
      if (job.max_rounds_ahead != 0) job.optimizer.kind = job::OptimizerKind::kSgd;
      if (chance.OneIn(2)) ChooseAsyncLocalSgd(chance, job);
      break;
    }
    case 4:
    case 5:
      job.mode = job::Mode::kLocalSgd;
      job.local_steps = static_cast<int>(chance.Between(2, 4));
      constexpr job::OuterOptimizerKind kOuter[] = {job::OuterOptimizerKind::kAverage,
                                                    job::OuterOptimizerKind::kNesterov,
                                                    job::OuterOptimizerKind::kSgd};
      job.outer_optimizer = kOuter[chance.Between(0, 2)];
      job.outer_learning_rate = job.outer_optimizer == job::OuterOptimizerKind::kSgd ? 0.5 : 1.0;
      job.outer_momentum = 0.5;
      if (chance.OneIn(2)) ChooseOverlap(chance, job);
      break;
  }
}

void ChooseCheckpoints(Chance& chance, coordinator::CoordinatorConfig& config) {
  config.checkpoint_dir = "/checkpoints";
  if (chance.OneIn(4)) {
    config.checkpoint_schedule.interval = absl::Milliseconds(chance.Between(200, 4000));
    config.checkpoint_schedule.max_cost = chance.OneIn(2) ? 0.01 : 0.5;
  } else {
    config.checkpoint_schedule.every_rounds = chance.Between(3, 40);
  }
  if (chance.OneIn(3)) config.fallback_dir = "/fallback";
}

absl::Duration ChooseStopTimeout(Chance& chance) {
  const absl::Duration stop_timeouts[] = {absl::Seconds(5), absl::Seconds(20), absl::Seconds(60)};
  return chance.Of(stop_timeouts);
}

absl::Duration ChooseRoundTimeout(Chance& chance) {
  const absl::Duration round_timeouts[] = {absl::Seconds(15), absl::Seconds(30), absl::Seconds(40)};
  return chance.Of(round_timeouts);
}

// Chooses what an operator of a site sets; the rest comes from the job of the servers upstream.
ClusterScenario ChooseSite(Chance& chance, const job::JobSpec& upstream) {
  ClusterScenario site;
  site.num_workers = static_cast<int>(chance.Between(1, 3));
  site.has_foreign_worker = chance.OneIn(8);
  site.longest_step = chance.Between(absl::Milliseconds(1), absl::Milliseconds(30));
  job::JobSpec asked;
  std::set<std::string> given = {"min_workers", "keep_workers", "bucket_bytes", "push_encoding",
                                 "norm_limit"};
  // As for the root, the audit expects the plain mean, so no norm is limited.
  asked.norm_limit = 0.0;
  const int64_t most = std::min<int64_t>(site.num_workers, job::StepSamples(upstream));
  asked.min_workers = static_cast<int>(chance.Between(1, most));
  asked.keep_workers = static_cast<int>(chance.Between(1, asked.min_workers));
  asked.bucket_bytes = chance.OneIn(2) ? 64 : 4096;
  asked.push_encoding = chance.Of(kPushEncodings);
  asked.feedback_decay = job::DefaultFeedbackDecay(asked.push_encoding);
  if (chance.OneIn(4)) {
    asked.balance = job::Balance::kSpeed;
    given.insert("balance");
  }
  const bool has_fixed_steps =
      job::HasRosters(upstream) || upstream.balance != job::Balance::kSpeed;
  if (upstream.local_steps > 1 && has_fixed_steps && chance.OneIn(3)) {
    asked.mode = job::Mode::kLocalSgd;
    asked.local_steps = upstream.local_steps % 2 == 0 && chance.OneIn(2) ? 2 : upstream.local_steps;
    constexpr job::OuterOptimizerKind kOuter[] = {job::OuterOptimizerKind::kAverage,
                                                  job::OuterOptimizerKind::kNesterov,
                                                  job::OuterOptimizerKind::kSgd};
    asked.outer_optimizer = chance.Of(kOuter);
    asked.outer_learning_rate = 0.5;
    asked.outer_momentum = 0.5;
    given.insert(
        {"mode", "local_steps", "outer_optimizer", "outer_learning_rate", "outer_momentum"});
  }
  messages::Registration registration;
  registration.job = upstream;
  auto map = std::make_shared<messages::ClusterMap>();
  map->layout = *params::BuildLayout(upstream.model);
  registration.map = std::move(map);
  const absl::StatusOr<job::JobSpec> job = site::SiteJob(registration, asked, given);
  LODESTAR_CHECK(job.ok()) << job.status();
  coordinator::CoordinatorConfig& config = site.coordinator;
  config.job = *job;
  config.upstream = "root:50051";
  config.lease = absl::Seconds(chance.Between(1, 5));
  if (!chance.OneIn(4)) ChooseCheckpoints(chance, config);
  config.stop_timeout = ChooseStopTimeout(chance);
  config.round_timeout = ChooseRoundTimeout(chance);
  site.keep = static_cast<int>(chance.Between(1, 3));
  return site;
}

// Returns true if the job counts a contribution by its own weight, if it has one.
bool CountsWeights(const job::JobSpec& job) {
  return job::HasRosters(job) && !job::DefersContributions(job);
}

// Chooses what the programs of the workers do beside computing.
void ChoosePrograms(Chance& chance, ClusterScenario& scenario) {
  scenario.extends_grants = chance.OneIn(3);
  if (!CountsWeights(scenario.coordinator.job)) return;
  scenario.gives_weights = chance.OneIn(3);
  scenario.has_odd_worker = scenario.num_workers > 1 && chance.OneIn(8);
}

// Makes one or two workers of the job sites.
void ChooseSites(Chance& chance, Scenario& scenario) {
  job::JobSpec& job = scenario.coordinator.job;
  // The mean of whole numbers need not be a whole number: see ChooseOuterStep().
  job.momentum_correction = job::MomentumCorrectionKind::kNone;
  // The inner optimizers of sites clip; the other workers make random contributions.
  if (job.optimizer.kind == job::OptimizerKind::kSgd && chance.OneIn(3)) {
    job.clip_norm = static_cast<double>(chance.Between(1, 12));
  }
  const int num_sites = static_cast<int>(chance.Between(1, std::min(scenario.num_workers, 2)));
  scenario.num_workers -= num_sites;
  if (scenario.num_workers == 0) scenario.has_foreign_worker = false;
  for (int i = 0; i < num_sites; ++i) scenario.sites.push_back(ChooseSite(chance, job));
}

std::string ProgramsText(const ClusterScenario& scenario) {
  return absl::StrCat(scenario.extends_grants ? ", grants are extended" : "",
                      scenario.gives_weights ? ", contributions have weights" : "",
                      scenario.has_odd_worker ? ", one worker does otherwise" : "");
}

std::string SiteText(const ClusterScenario& site) {
  const job::JobSpec& job = site.coordinator.job;
  return absl::StrCat(
      ", a site: ", ModeText(job), ", ", site.num_workers, " workers (at least ", job.min_workers,
      ", then ", job.keep_workers, "), push ", params::EncodingText(job.push_encoding), ", clip ",
      job.clip_norm, ", lease ", absl::FormatDuration(site.coordinator.lease),
      site.coordinator.checkpoint_dir.empty() ? ", no checkpoints" : "", ProgramsText(site));
}

}  // namespace

Scenario MakeScenario(uint64_t seed, int64_t num_rounds) {
  Chance chance(Chance::Mix(seed));
  Scenario scenario;
  scenario.num_workers = static_cast<int>(chance.Between(1, 4));
  coordinator::CoordinatorConfig& config = scenario.coordinator;
  job::JobSpec& job = config.job;
  // The audit expects the plain mean, so contributions of any norm must count.
  job.norm_limit = 0.0;
  job.model = {"whole-numbers", params::MlpSpec{{5, 4, 3}}};
  ChooseMode(chance, scenario.num_workers, job);
  job.schedule.total_rounds = num_rounds;
  job.schedule.peak = 1.0;
  job.schedule.minimum = 1.0;
  if (chance.OneIn(2)) {
    job.batch_size = chance.Between(1, 4);
  } else {
    job.global_batch_size = chance.Between(scenario.num_workers, 9);
  }
  job.min_workers = static_cast<int>(chance.Between(std::max(job.quorum, 1), scenario.num_workers));
  job.keep_workers = chance.OneIn(2) ? 1 : static_cast<int>(chance.Between(1, job.min_workers));
  job.seed = seed;
  job.eval_samples = 0;
  job.bucket_bytes = chance.OneIn(2) ? 64 : 4096;
  job.push_encoding = chance.Of(kPushEncodings);
  job.pull_encoding = chance.Of(kPullEncodings);
  job.feedback_decay = job::DefaultFeedbackDecay(job.push_encoding);
  if (job.mode == job::Mode::kSync && job.optimizer.kind == job::OptimizerKind::kSgd &&
      chance.Below(4) != 1) {
    job.clip_norm = static_cast<double>(chance.Between(1, 12));  // mostly less than the norm
  }
  config.num_shards = static_cast<int>(chance.Between(1, 3));
  config.lease = absl::Seconds(chance.Between(1, 5));
  config.exit_when_done = true;
  if (!chance.OneIn(5)) ChooseCheckpoints(chance, config);
  config.stop_timeout = ChooseStopTimeout(chance);
  scenario.keep = static_cast<int>(chance.Between(1, 3));
  scenario.speaks_old_wire = chance.OneIn(20);
  scenario.has_old_worker = scenario.speaks_old_wire ||
                            (chance.OneIn(10) && (job.push_encoding != params::Encoding::kFp32 ||
                                                  job.pull_encoding != params::Encoding::kFp32));
  scenario.has_foreign_worker = chance.OneIn(8);
  scenario.longest_delay = chance.Between(absl::Microseconds(100), absl::Milliseconds(10));
  scenario.longest_step = chance.Between(absl::Milliseconds(1), absl::Milliseconds(50));
  // The interval ranges from one fault per round to one fault per hundred rounds.
  scenario.fault_pause = absl::Milliseconds(30 << chance.Below(8));
  scenario.is_stormy_to_the_end = chance.OneIn(2);
  config.round_timeout = ChooseRoundTimeout(chance);
  scenario.journals = !config.checkpoint_dir.empty() && chance.OneIn(2);
  config.has_journal = scenario.journals;
  scenario.has_replica = scenario.journals && chance.OneIn(2);
  // Several servers have their checkpoints on a shared disk, so only a single server copies them to
  // the replica.
  scenario.replica_has_checkpoints =
      scenario.has_replica && config.num_shards == 1 && chance.OneIn(2);
  if (scenario.journals && chance.OneIn(2)) {
    config.journal_limit_bytes = chance.Between(1 << 12, 1 << 16);
  }
  // Options that were added later are drawn last, so that existing seeds keep their other choices.
  if (job.mode != job::Mode::kAsync && chance.OneIn(4)) job.balance = job::Balance::kSpeed;
  if (job.mode == job::Mode::kLocalSgd &&
      job.outer_optimizer != job::OuterOptimizerKind::kAverage && !job.overlap_rounds &&
      chance.OneIn(4)) {
    job.outer_reduction = job::OuterReduction::kDirection;
  }
  if (job.mode == job::Mode::kLocalSgd && job.outer_optimizer == job::OuterOptimizerKind::kSgd &&
      !job.overlap_rounds && !job::AveragesDirections(job) && chance.OneIn(2)) {
    job.outer_optimizer = job::OuterOptimizerKind::kEasgd;
    job.overlap_steps = 0;
  }
  if (job.mode == job::Mode::kAsyncLocalSgd) ChooseOuterStep(chance, job);
  const bool bounds_samples =
      !job::HasRosters(job) || job.balance == job::Balance::kEqual || job.global_batch_size > 0;
  if (job::HasLocalSteps(job) && !job::DefersContributions(job) && bounds_samples &&
      chance.Below(3) > 0) {
    ChooseSites(chance, scenario);
  }
  scenario.goes_back = scenario.journals && !scenario.has_replica && chance.OneIn(2);
  // A separate Chance is used, so that existing seeds keep their choices.
  config.ends_unconnected = Chance(Chance::Mix(seed + 3)).OneIn(4);
  Chance programs(Chance::Mix(seed + 5));
  for (ClusterScenario& site : scenario.sites) ChoosePrograms(programs, site);
  // Sites give no weights, and so no other worker of their job may give one.
  if (scenario.sites.empty()) ChoosePrograms(programs, scenario);
  const absl::Status valid = job::ValidateJobSpec(job);
  LODESTAR_CHECK(valid.ok()) << "seed " << seed << ": " << valid;
  scenario.text = absl::StrCat(
      ModeText(job), ", ", NameOf(job.optimizer.kind), ", ", config.num_shards, " servers, ",
      scenario.num_workers, " workers (at least ", job.min_workers, ", then ", job.keep_workers,
      "), push ", params::EncodingText(job.push_encoding), ", pull ",
      params::EncodingName(job.pull_encoding), ", clip ", job.clip_norm, ", lease ",
      absl::FormatDuration(config.lease), ", ",
      config.checkpoint_dir.empty()
          ? "no checkpoints"
          : absl::StrCat("checkpoints every ", ScheduleText(config.checkpoint_schedule),
                         config.fallback_dir.empty() ? "" : ", else into another folder",
                         scenario.journals ? ", and a journal" : "",
                         scenario.has_replica ? " with a replica" : "",
                         scenario.goes_back ? " that goes back" : "",
                         scenario.replica_has_checkpoints ? ", also of the checkpoints" : ""),
      ", a fault every ",
      absl::FormatDuration(absl::Trunc(scenario.fault_pause, absl::Milliseconds(1))),
      config.ends_unconnected ? ", connections that were closed count" : "",
      ProgramsText(scenario));
  for (const ClusterScenario& site : scenario.sites) scenario.text += SiteText(site);
  return scenario;
}

}  // namespace lodestar::simulation
