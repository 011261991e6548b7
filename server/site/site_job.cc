// SPDX-License-Identifier: Apache-2.0

#include "server/site/site_job.h"

#include <algorithm>
#include <iterator>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/job_fields.h"
#include "common/params/model_spec.h"
#include "common/runtime/status_macros.h"

namespace lodestar::site {
namespace {

constexpr absl::string_view kSiteModes[] = {"sync", "local_sgd"};

// Returns true if the site itself sets this field for its workers.
bool IsOwn(const job::JobField& field, const job::JobSpec& asked) {
  return field.site == job::JobField::Site::kOwn ||
         (field.site == job::JobField::Site::kOwnWithLocalSteps && job::HasLocalSteps(asked));
}

// Returns the flags that are always a site's own, as a text such as "--balance, --robust_mean".
std::string OwnFlags() {
  std::vector<std::string> flags;
  for (const job::JobField& field : job::JobFields()) {
    if (field.site == job::JobField::Site::kOwn) flags.push_back(absl::StrCat("--", field.name));
  }
  return absl::StrJoin(flags, ", ");
}

// Checks that sites can be workers of the job.
absl::Status CheckMayHaveSites(const job::JobSpec& job) {
  if (!job::HasLocalSteps(job)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the upstream servers have --mode=", NameOf(job.mode),
                     ", but a site sends changes of weights after --local_steps steps. Give the "
                     "upstream servers --mode=local_sgd or async_local_sgd"));
  }
  if (job::HasRosters(job) && job.balance == job::Balance::kSpeed && job.global_batch_size == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the upstream servers have --balance=speed and --batch_size=", job.batch_size,
        ", so a fast worker gets an unlimited number of samples in a step. A site needs a limit. "
        "Give the upstream servers --global_batch_size, or --balance=equal"));
  }
  if (std::holds_alternative<params::ClientModelSpec>(job.model.architecture)) {
    return absl::FailedPreconditionError(
        "the upstream servers have --model=client, but a site needs a model that servers know; "
        "give them a preset or a file");
  }
  return absl::OkStatus();
}

absl::Status CheckLayout(const messages::Registration& upstream) {
  ASSIGN_OR_RETURN(const params::Layout layout, params::BuildLayout(upstream.job.model));
  if (layout.hash() == upstream.layout().hash()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the layout of the model has hash ", upstream.layout().hash(),
                   " on the upstream servers, but ", layout.hash(),
                   " in this release; use the same release on both sides"));
}

// Returns true if each window of the job can be divided into orders of this number of steps.
bool MakeUpWindows(int steps_of_order, const job::JobSpec& job) {
  return steps_of_order == 1 || job.local_steps % (int64_t{steps_of_order} * job.fragments) == 0;
}

// Returns the number of steps of a window of the job, for messages.
std::string WindowText(const job::JobSpec& job) {
  return job.fragments == 1 ? absl::StrCat(job.local_steps)
                            : absl::StrCat(job.local_steps, " over --fragments=", job.fragments);
}

// Compares what the operator of the site has given with the job upstream.
absl::Status CheckGiven(const job::JobSpec& upstream, const job::JobSpec& asked,
                        const std::set<std::string>& given) {
  std::vector<std::string> refused;
  const auto refuse = [&](absl::string_view flag, absl::string_view value,
                          absl::string_view wanted) {
    refused.push_back(absl::StrCat("--", flag, "=", value, " contradicts ", wanted));
  };
  if (std::find(std::begin(kSiteModes), std::end(kSiteModes), NameOf(asked.mode)) ==
      std::end(kSiteModes)) {
    refused.push_back(absl::StrCat("--mode=", NameOf(asked.mode),
                                   " cannot be used at a site; give ",
                                   absl::StrJoin(kSiteModes, " or ")));
  }
  if (job::DefersContributions(asked)) {
    refused.push_back(
        "--fragments, --overlap_steps, --overlap_rounds and --outer_optimizer=easgd cannot be "
        "used at a site, because each round of its workers ends before the next begins");
  }
  if (!MakeUpWindows(asked.local_steps, upstream)) {
    refuse("local_steps", absl::StrCat(asked.local_steps),
           absl::StrCat(WindowText(upstream),
                        " upstream, which must be a multiple of the site's --local_steps"));
  }
  if (asked.local_steps > 1 && !job::HasRosters(upstream) &&
      upstream.balance == job::Balance::kSpeed) {
    refuse("local_steps", absl::StrCat(asked.local_steps),
           "--balance=speed upstream, with which a round has any number of steps");
  }
  if (given.contains("model") && !(asked.model == upstream.model)) {
    refuse("model", asked.model.name, absl::StrCat(upstream.model.name, " upstream"));
  }
  if (asked.quorum != 0) {
    refuse("quorum", absl::StrCat(asked.quorum),
           "0, the only value for a site, because all samples of a step must count");
  }
  if (asked.pull_encoding != params::Encoding::kFp32) {
    refuse(
        "pull_encoding", params::EncodingText(asked.pull_encoding),
        "fp32, the only encoding for a site, whose weights also change by updates from upstream");
  }
  for (const job::JobField& field : job::JobFields()) {
    const bool is_looked_at =
        field.name == "mode" || field.name == "quorum" || field.name == "pull_encoding";
    if (is_looked_at || !given.contains(std::string(field.name)) || IsOwn(field, asked)) continue;
    const job::JobValue value = field.get(asked);
    const job::JobValue wanted = field.get(upstream);
    if (value != wanted) {
      refuse(field.name, job::TextOf(value), absl::StrCat(job::TextOf(wanted), " upstream"));
    }
  }
  if (refused.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      absl::StrJoin(refused, "; "),
      ". A site gets its job from --upstream, so leave these flags out. A site may have ",
      OwnFlags()));
}

// Returns the number of evaluations on held-out samples in all rounds of the job.
int64_t NumEvaluations(const job::JobSpec& job) {
  const int64_t during = job.eval_every > 0 ? (job.schedule.total_rounds - 1) / job.eval_every : 0;
  return during + 1;
}

}  // namespace

absl::StatusOr<job::JobSpec> SiteJob(const messages::Registration& upstream,
                                     const job::JobSpec& asked,
                                     const std::set<std::string>& given) {
  RETURN_IF_ERROR(CheckMayHaveSites(upstream.job));
  RETURN_IF_ERROR(CheckLayout(upstream));
  RETURN_IF_ERROR(CheckGiven(upstream.job, asked, given));
  // `job` keeps all settings of the site that are not taken from upstream: the mode, defaults, and
  // settings about the exchange within the site.
  job::JobSpec job = asked;
  job.model = upstream.job.model;
  job.seed = upstream.job.seed;
  job.optimizer = upstream.job.optimizer;
  job.clip_norm = upstream.job.clip_norm;
  job.batch_size = 0;
  job.global_batch_size = job::StepSamples(upstream.job);
  job.eval_every = 0;
  job.eval_samples = 0;
  // The schedule is used only in messages, because each order has its own learning rate.
  // total_rounds also counts evaluations: each of them is a round of the site.
  job.schedule = upstream.job.schedule;
  const auto own_rounds = [&](int64_t rounds) {
    return rounds * upstream.job.local_steps / (int64_t{job.local_steps} * upstream.job.fragments);
  };
  job.schedule.warmup_rounds = own_rounds(job.schedule.warmup_rounds);
  job.schedule.total_rounds = own_rounds(job.schedule.total_rounds);
  job.schedule.total_rounds += NumEvaluations(upstream.job);
  RETURN_IF_ERROR(job::ValidateJobSpec(job));
  return job;
}

absl::Status CheckGoesOn(const job::JobSpec& began, const job::JobSpec& now, int steps_of_order) {
  RETURN_IF_ERROR(CheckMayHaveSites(now));
  if (!MakeUpWindows(steps_of_order, now)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the upstream servers now have --local_steps=", WindowText(now),
        ", which is not a multiple of this site's --local_steps=", steps_of_order,
        "; start the site again with a --local_steps that divides the upstream value"));
  }
  if (steps_of_order > 1 && !job::HasRosters(now) && now.balance == job::Balance::kSpeed) {
    return absl::FailedPreconditionError(
        absl::StrCat("the upstream servers now have --balance=speed, so rounds have any number of "
                     "steps, but this site has --local_steps=",
                     steps_of_order, "; start the site again with --local_steps=1"));
  }
  for (const job::JobField& field : job::JobFields()) {
    if (!field.is_site_state) continue;
    const job::JobValue before = field.get(began);
    const job::JobValue after = field.get(now);
    if (before == after) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the upstream servers had --", field.name, "=", job::TextOf(before),
        " when this site began, and now have ", job::TextOf(after), "; start the site again"));
  }
  if (!(began.model == now.model)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the upstream servers had --model=", began.model.name,
                     " when this site began, and now have another model (--model=", now.model.name,
                     "); start the site again"));
  }
  return absl::OkStatus();
}

}  // namespace lodestar::site
