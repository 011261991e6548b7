// SPDX-License-Identifier: Apache-2.0

#include "common/job/job_spec.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "common/job/job_fields.h"
#include "common/runtime/check.h"
#include "common/runtime/status_macros.h"

namespace lodestar::job {
namespace {

absl::Status Refuse(absl::string_view flag, absl::string_view value, absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", value, " ", reason));
}

absl::Status CheckOuterOptimizer(const JobSpec& job) {
  if (IsElastic(job) && job.outer_learning_rate > 1) {
    return Refuse("outer_learning_rate", absl::StrCat(job.outer_learning_rate),
                  "is out of range; with --outer_optimizer=easgd, allowed is 0 to 1");
  }
  const bool is_delayed = job.outer_optimizer == OuterOptimizerKind::kNesterov ||
                          job.outer_optimizer == OuterOptimizerKind::kSgd;
  if (job.mode != Mode::kAsyncLocalSgd || is_delayed) return absl::OkStatus();
  return Refuse(
      "outer_optimizer", NameOf(job.outer_optimizer),
      "is not for --mode=async_local_sgd, where each contribution is applied when it arrives. Use "
      "nesterov or sgd. With --outer_learning_rate=1, sgd does what average does");
}

absl::Status CheckMode(const JobSpec& job) {
  const std::string not_in_mode =
      absl::StrCat("has no meaning with --mode=", NameOf(job.mode), "; ");
  if (job.keep_workers < 1 || job.keep_workers > job.min_workers) {
    return Refuse("keep_workers", absl::StrCat(job.keep_workers),
                  absl::StrCat("is out of range; allowed are 1 to ", job.min_workers,
                               ", the value of --min_workers. A job that needs more workers to "
                               "continue than to start would wait as soon as it has started"));
  }
  if (job.quorum > 0 && job.mode != Mode::kSync && job.mode != Mode::kAsyncLocalSgd) {
    return Refuse("quorum", absl::StrCat(job.quorum),
                  not_in_mode + "use --mode=sync or async_local_sgd, or --quorum=0");
  }
  if (job.quorum > job.min_workers && job.mode == Mode::kSync) {
    return Refuse("quorum", absl::StrCat(job.quorum),
                  absl::StrCat("exceeds --min_workers=", job.min_workers,
                               ": a round could start that can never be completed. Give at most ",
                               job.min_workers));
  }
  if (job.max_rounds_ahead >= 0 && job.mode != Mode::kAsync && job.mode != Mode::kAsyncLocalSgd) {
    return Refuse("max_rounds_ahead", absl::StrCat(job.max_rounds_ahead),
                  not_in_mode + "use --mode=async or async_local_sgd, or --max_rounds_ahead=-1");
  }
  if (job.max_rounds_ahead == 0 && job.mode == Mode::kAsyncLocalSgd) {
    return Refuse("max_rounds_ahead", "0",
                  "means lock step, and lock step with local steps is --mode=local_sgd; use that "
                  "mode, or give at least 1");
  }
  if (job.max_staleness >= 0 && job.mode != Mode::kAsyncLocalSgd) {
    return Refuse("max_staleness", absl::StrCat(job.max_staleness),
                  not_in_mode + "use --mode=async_local_sgd, or --max_staleness=-1");
  }
  if (job.balance != Balance::kEqual && job.mode == Mode::kAsync) {
    return Refuse("balance", NameOf(job.balance),
                  not_in_mode + "in this mode, no worker waits for another. Use --balance=equal");
  }
  if (job.staleness_scaling != StalenessScaling::kNone && job.mode != Mode::kAsync) {
    return Refuse("staleness_scaling", NameOf(job.staleness_scaling),
                  not_in_mode + "use --mode=async, or --staleness_scaling=none");
  }
  if (job.local_steps > 1 && !HasLocalSteps(job)) {
    return Refuse("local_steps", absl::StrCat(job.local_steps),
                  not_in_mode + "use --mode=local_sgd or async_local_sgd, or --local_steps=1");
  }
  return CheckOuterOptimizer(job);
}

absl::Status CheckOverlap(const JobSpec& job) {
  if (!DefersContributions(job)) return absl::OkStatus();
  const std::string fragments = absl::StrCat(job.fragments);
  const std::string overlap_steps = absl::StrCat(job.overlap_steps);
  const absl::string_view outer_optimizer = NameOf(job.outer_optimizer);
  const auto refuse = [&](absl::string_view reason) {
    if (job.overlap_rounds) return Refuse("overlap_rounds", "true", reason);
    if (job.fragments > 1) return Refuse("fragments", fragments, reason);
    if (job.overlap_steps > 0) return Refuse("overlap_steps", overlap_steps, reason);
    return Refuse("outer_optimizer", outer_optimizer, reason);
  };
  if (job.mode != Mode::kLocalSgd) {
    return refuse(absl::StrCat("has no meaning with --mode=", NameOf(job.mode),
                               "; use --mode=local_sgd, or leave this flag out"));
  }
  if (std::holds_alternative<params::ClientModelSpec>(job.model.architecture)) {
    return refuse(
        "is not for --model=client, because its programs keep one set of weights; leave "
        "this flag out");
  }
  if (job.overlap_rounds && (job.fragments > 1 || job.overlap_steps > 0)) {
    return refuse(absl::StrCat("overlaps whole rounds of all parameters, and contradicts",
                               job.fragments > 1 ? " --fragments=" + fragments : "",
                               job.overlap_steps > 0 ? " --overlap_steps=" + overlap_steps : "",
                               "; use one of the two flags"));
  }
  if (job.overlap_rounds && job.outer_optimizer != OuterOptimizerKind::kNesterov &&
      job.outer_optimizer != OuterOptimizerKind::kSgd) {
    return refuse(absl::StrCat("needs --outer_optimizer=nesterov or sgd, not ", outer_optimizer,
                               ". With --outer_learning_rate=1, sgd does what average does"));
  }
  if (IsElastic(job) && job.overlap_steps > 0) {
    return refuse(
        "contradicts --outer_optimizer=easgd, where each exchange already overlaps all "
        "steps until the next; leave the flag out");
  }
  if (job.fragments > job.local_steps) {
    return Refuse("fragments", fragments,
                  absl::StrCat("exceeds --local_steps=", job.local_steps,
                               ": each fragment is exchanged once in that many steps. Give fewer "
                               "fragments or more local steps"));
  }
  const int window = job.local_steps / job.fragments;
  if (job.overlap_steps > window) {
    return Refuse("overlap_steps", overlap_steps,
                  absl::StrCat("exceeds the ", window,
                               " steps between two exchanges (--local_steps=", job.local_steps,
                               " divided by --fragments=", fragments, "); give at most ", window));
  }
  return absl::OkStatus();
}

absl::Status CheckRobustMean(const JobSpec& job) {
  if (!job.robust_mean.is_robust()) return absl::OkStatus();
  RETURN_IF_ERROR(ValidateRobustMean(job.robust_mean));
  const std::string text = RobustMeanText(job.robust_mean);
  if (!HasRosters(job)) {
    return Refuse("robust_mean", text,
                  absl::StrCat("has no meaning with --mode=", NameOf(job.mode),
                               ", where each contribution is applied alone; use --mode=sync or "
                               "local_sgd, or --robust_mean=none"));
  }
  if (job.min_workers > kMaxRobustContributions) {
    return Refuse("robust_mean", text,
                  absl::StrCat("combines at most ", kMaxRobustContributions,
                               " contributions, but --min_workers=", job.min_workers,
                               ". Give --min_workers of at most ", kMaxRobustContributions,
                               ", or --robust_mean=none"));
  }
  const int least = job.robust_mean.MinContributions();
  if (job.quorum == 0 || job.quorum >= least) return absl::OkStatus();
  return Refuse(
      "robust_mean", text,
      absl::StrCat("needs ", least, " contributions per round, but --quorum=", job.quorum,
                   " lets a round be completed with fewer. Give --quorum=0, or at least ", least));
}

absl::Status CheckOuterReduction(const JobSpec& job) {
  if (job.outer_reduction == OuterReduction::kMean) return absl::OkStatus();
  const auto refuse = [&job](absl::string_view reason) {
    return Refuse("outer_reduction", NameOf(job.outer_reduction), reason);
  };
  if (job.mode != Mode::kLocalSgd) {
    return refuse(absl::StrCat("has no meaning with --mode=", NameOf(job.mode),
                               ", which makes no outer step per round; use --mode=local_sgd, or "
                               "--outer_reduction=mean"));
  }
  if (job.outer_optimizer == OuterOptimizerKind::kAverage) {
    return refuse(
        "contradicts --outer_optimizer=average, which combines weights and not changes "
        "of weights. Use nesterov or adam, or sgd with --outer_learning_rate=1");
  }
  if (IsElastic(job)) {
    return refuse(
        "contradicts --outer_optimizer=easgd, which moves the servers' weights towards "
        "the workers' mean. Use another --outer_optimizer, or --outer_reduction=mean");
  }
  if (job.robust_mean.is_robust()) {
    return refuse(absl::StrCat(
        "contradicts --robust_mean=", RobustMeanText(job.robust_mean),
        ", which combines contributions element by element; use one of the two flags"));
  }
  if (DividesBySenders(job)) {
    return refuse(
        "contradicts --topk_divisor=senders, because the combined length is the mean "
        "over all workers. Use --topk_divisor=workers");
  }
  if (job.overlap_rounds) {
    return refuse(
        "contradicts --overlap_rounds, where each worker makes the outer step for its own changes "
        "alone. Use --overlap_steps, or --outer_reduction=mean");
  }
  return absl::OkStatus();
}

absl::Status CheckMomentumCorrection(const JobSpec& job) {
  if (job.momentum_correction == MomentumCorrectionKind::kNone) return absl::OkStatus();
  const absl::string_view name = NameOf(job.momentum_correction);
  if (job.mode != Mode::kAsyncLocalSgd) {
    return Refuse("momentum_correction", name,
                  absl::StrCat("has no meaning with --mode=", NameOf(job.mode),
                               "; use --mode=async_local_sgd, or --momentum_correction=none"));
  }
  if (job.outer_optimizer == OuterOptimizerKind::kNesterov) return absl::OkStatus();
  return Refuse(
      "momentum_correction", name,
      absl::StrCat("needs an outer momentum, and --outer_optimizer=", NameOf(job.outer_optimizer),
                   " has none. Use --outer_optimizer=nesterov, or --momentum_correction=none"));
}

absl::Status CheckAnchor(const JobSpec& job) {
  if (job.anchor == Anchor::kWorker) return absl::OkStatus();
  const absl::string_view name = NameOf(job.anchor);
  if (job.mode != Mode::kAsyncLocalSgd) {
    return Refuse("anchor", name,
                  absl::StrCat("has no meaning with --mode=", NameOf(job.mode),
                               "; use --mode=async_local_sgd, or --anchor=worker"));
  }
  const auto refuse = [name](absl::string_view flag, params::Encoding encoding) {
    return Refuse(
        "anchor", name,
        absl::StrCat("contradicts --", flag, "=", params::EncodingName(encoding),
                     ": what the encoding loses in the weights would count as a change. Use --",
                     flag, "=fp32, or --anchor=worker"));
  };
  if (job.push_encoding != params::Encoding::kFp32)
    return refuse("push_encoding", job.push_encoding);
  if (job.pull_encoding != params::Encoding::kFp32)
    return refuse("pull_encoding", job.pull_encoding);
  return absl::OkStatus();
}

absl::Status CheckEncodings(const JobSpec& job) {
  if (!(job.feedback_decay > 0 && job.feedback_decay <= 1)) {
    return Refuse("feedback_decay", absl::StrCat(job.feedback_decay),
                  "is out of range; allowed is 0 < value <= 1");
  }
  if (job.pull_encoding.is_topk()) {
    return Refuse("pull_encoding", "topk",
                  "is only for contributions. As --pull_encoding it would leave out most of each "
                  "change, and the workers' weights would stay far behind. Use int4");
  }
  if (!job.push_encoding.is_topk()) return absl::OkStatus();
  RETURN_IF_ERROR(
      params::MakeTopK(job.push_encoding.topk(), job.push_encoding.topk_bits()).status());
  if (!job.error_feedback) {
    return Refuse("push_encoding", "topk",
                  "needs --error_feedback, because without it small elements would never be sent. "
                  "Leave --error_feedback on, or use int4");
  }
  if (job.robust_mean.is_robust()) {
    return Refuse("push_encoding", "topk",
                  absl::StrCat("contradicts --robust_mean=", RobustMeanText(job.robust_mean),
                               ": most workers send no value for an element, so its median would "
                               "be 0. Leave out one of the two flags"));
  }
  return absl::OkStatus();
}

absl::Status CheckReduce(const JobSpec& job) {
  if (!ReducesOnly(job)) return absl::OkStatus();
  const auto refuse = [](absl::string_view reason) {
    return Refuse("optimizer", "reduce", reason);
  };
  if (job.mode != Mode::kSync) {
    return refuse(absl::StrCat(
        "has no meaning with --mode=", NameOf(job.mode),
        ", which has no mean gradient of a round; use --mode=sync or another optimizer"));
  }
  if (!std::holds_alternative<params::ClientModelSpec>(job.model.architecture)) {
    return refuse(absl::StrCat("is not for the model '", job.model.name,
                               "': its workers would get gradients in place of weights. Use "
                               "--model=client or another optimizer"));
  }
  if (job.quorum != 0) {
    return refuse(absl::StrCat("contradicts --quorum=", job.quorum,
                               ": a late worker would miss the round's mean, and have other "
                               "weights from then on. Leave --quorum out"));
  }
  if (job.pull_encoding == params::Encoding::kFp32) return absl::OkStatus();
  return refuse(
      absl::StrCat("contradicts --pull_encoding=", params::EncodingName(job.pull_encoding),
                   ": what the encoding loses in a round would never be made up for. Use "
                   "--pull_encoding=fp32; --push_encoding may have any value"));
}

absl::Status CheckSchedule(const JobSpec& job) {
  const LearningRateSchedule& schedule = job.schedule;
  if (schedule.kind == ScheduleKind::kProgram && !CanTakeProgramRates(job)) {
    return Refuse("lr_schedule", "program",
                  "needs --model=client and another mode than async, because in async the servers "
                  "set the learning rate. Give --lr_schedule=constant, cosine or linear");
  }
  if (schedule.kind == ScheduleKind::kProgram && !(schedule.peak > 0.0)) {
    return Refuse("learning_rate", absl::StrCat(schedule.peak),
                  "contradicts --lr_schedule=program, whose rates are multiples of "
                  "--learning_rate; give a rate above 0, or leave --learning_rate out");
  }
  if (schedule.warmup_rounds > schedule.total_rounds) {
    return Refuse("warmup_rounds", absl::StrCat(schedule.warmup_rounds),
                  absl::StrCat("exceeds --rounds=", schedule.total_rounds, "; give at most ",
                               schedule.total_rounds));
  }
  if (schedule.minimum > schedule.peak) {
    return Refuse(
        "min_learning_rate", absl::StrCat(schedule.minimum),
        absl::StrCat("exceeds --learning_rate=", schedule.peak, "; give at most ", schedule.peak));
  }
  return absl::OkStatus();
}

absl::Status CheckBatch(const JobSpec& job) {
  if (job.batch_size > 0 && job.global_batch_size > 0) {
    return Refuse("batch_size", absl::StrCat(job.batch_size),
                  absl::StrCat("contradicts --global_batch_size=", job.global_batch_size,
                               "; give one of the two flags"));
  }
  if (job.batch_size == 0 && job.global_batch_size == 0) {
    return Refuse("batch_size", "0",
                  "needs --global_batch_size; give a value above 0 for one of the two flags");
  }
  if (job.global_batch_size > 0 && job.global_batch_size < job.min_workers) {
    return Refuse(
        "global_batch_size", absl::StrCat(job.global_batch_size),
        absl::StrCat(
            "is below --min_workers=", job.min_workers,
            ": at least one worker would have no sample. Give at least one sample per worker"));
  }
  return absl::OkStatus();
}

}  // namespace

bool HasRosters(const JobSpec& job) {
  switch (job.mode) {
    case Mode::kSync:
    case Mode::kLocalSgd:
      return true;
    case Mode::kAsync:
      return job.max_rounds_ahead == 0;
    case Mode::kAsyncLocalSgd:
      return false;
  }
  LODESTAR_CHECK(false) << "mode " << static_cast<int>(job.mode);
  return false;
}

bool HasLocalSteps(const JobSpec& job) {
  return job.mode == Mode::kLocalSgd || job.mode == Mode::kAsyncLocalSgd;
}

bool IsAnchoredAtServer(const JobSpec& job) {
  return job.mode == Mode::kAsyncLocalSgd && job.anchor == Anchor::kServer;
}

int64_t StepSamples(const JobSpec& job) {
  return job.global_batch_size > 0 ? job.global_batch_size : job.batch_size;
}

bool DefersContributions(const JobSpec& job) {
  return job.fragments > 1 || job.overlap_steps > 0 || job.overlap_rounds || IsElastic(job);
}

bool IsElastic(const JobSpec& job) {
  return job.mode == Mode::kLocalSgd && job.outer_optimizer == OuterOptimizerKind::kEasgd;
}

bool ReducesOnly(const JobSpec& job) { return job.optimizer.kind == OptimizerKind::kReduce; }

bool CanTakeProgramRates(const JobSpec& job) {
  return job.mode != Mode::kAsync &&
         std::holds_alternative<params::ClientModelSpec>(job.model.architecture);
}

bool TakesProgramRates(const JobSpec& job) {
  return job.schedule.kind == ScheduleKind::kProgram && job.mode == Mode::kSync &&
         !ReducesOnly(job);
}

bool DividesBySenders(const JobSpec& job) {
  return job.push_encoding.is_topk() && job.topk_divisor == TopKDivisor::kSenders &&
         HasRosters(job);
}

bool AveragesDirections(const JobSpec& job) {
  return job.outer_reduction == OuterReduction::kDirection;
}

double DefaultFeedbackDecay(params::Encoding push_encoding) {
  return push_encoding.is_topk() ? 0.95 : 1.0;
}

absl::Status ValidateJobSpec(const JobSpec& job) {
  RETURN_IF_ERROR(params::ValidateModelSpec(job.model));
  RETURN_IF_ERROR(CheckFieldRanges(job));
  RETURN_IF_ERROR(CheckMode(job));
  RETURN_IF_ERROR(CheckOverlap(job));
  RETURN_IF_ERROR(CheckRobustMean(job));
  RETURN_IF_ERROR(CheckEncodings(job));
  RETURN_IF_ERROR(CheckOuterReduction(job));
  RETURN_IF_ERROR(CheckMomentumCorrection(job));
  RETURN_IF_ERROR(CheckAnchor(job));
  RETURN_IF_ERROR(CheckReduce(job));
  RETURN_IF_ERROR(CheckSchedule(job));
  return CheckBatch(job);
}

}  // namespace lodestar::job
