// SPDX-License-Identifier: Apache-2.0

#include "common/job/job_fields.h"

#include <cstdlib>
#include <limits>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/job/learning_rate_schedule.h"
#include "common/job/robust_mean.h"
#include "common/params/encoding.h"
#include "common/params/model_spec.h"
#include "common/runtime/flag_range.h"
#include "common/runtime/kind_names.h"
#include "common/runtime/status_macros.h"

namespace lodestar::job {
namespace {

using Absent = JobField::Absent;
using Site = JobField::Site;
using Type = JobField::Type;

constexpr int64_t kMaxRounds = int64_t{1} << 48;
constexpr int kMaxWorkers = 1 << 16;
constexpr int64_t kMaxBucketBytes = int64_t{1} << 30;
// Limits far above useful values. Products of them still fit into fp32.
constexpr double kMaxRate = kMaxLearningRate;
constexpr double kMaxNorm = 1e30;
// Minimum of --norm_limit, unless it is 0 (no limit). Norms of contributions from workers without
// faults may differ by this factor.
constexpr double kMinNormLimit = 2.0;
// Minimum of --epsilon and --outer_epsilon. A smaller value is 0 in fp32, and the optimizer would
// then divide 0 by 0 for elements without a gradient.
constexpr double kMinEpsilon = 1e-30;

constexpr NumberRange Whole(int64_t lowest, int64_t highest) {
  return {NumberRange::Kind::kWhole, static_cast<double>(lowest), static_cast<double>(highest)};
}
constexpr NumberRange Real(double lowest, double highest) {
  return {NumberRange::Kind::kReal, lowest, highest};
}
constexpr NumberRange ZeroOr(double lowest, double highest) {
  return {NumberRange::Kind::kZeroOrReal, lowest, highest};
}
constexpr NumberRange kBelowOne = {NumberRange::Kind::kBelowOne, 0.0, 1.0};

bool IsAdamW(const JobSpec& job) { return job.optimizer.kind == OptimizerKind::kAdamW; }
bool IsAsyncLocalSgd(const JobSpec& job) { return job.mode == Mode::kAsyncLocalSgd; }
bool IsOuterAdam(const JobSpec& job) {
  return HasLocalSteps(job) && job.outer_optimizer == OuterOptimizerKind::kAdam;
}
bool SendsTopK(const JobSpec& job) { return job.push_encoding.is_topk(); }

template <typename Value>
constexpr Type TypeOfMember() {
  if constexpr (std::is_same_v<Value, bool>) {
    return Type::kBool;
  } else if constexpr (std::is_same_v<Value, int>) {
    return Type::kInt32;
  } else if constexpr (std::is_same_v<Value, int64_t>) {
    return Type::kInt64;
  } else if constexpr (std::is_same_v<Value, uint64_t>) {
    return Type::kUint64;
  } else if constexpr (std::is_same_v<Value, double>) {
    return Type::kDouble;
  } else {
    return Type::kText;
  }
}

template <typename Value>
JobValue ToValue(const Value& member) {
  if constexpr (HasKindNames<Value>) {
    return std::string(NameOf(member));
  } else if constexpr (std::is_same_v<Value, params::Encoding>) {
    return std::string(params::EncodingName(member));
  } else if constexpr (std::is_same_v<Value, RobustMean>) {
    return RobustMeanText(member);
  } else if constexpr (std::is_same_v<Value, int>) {
    return int64_t{member};
  } else {
    return member;
  }
}

template <typename Value>
absl::Status FromValue(const JobField& field, const JobValue& value, Value& member) {
  if constexpr (HasKindNames<Value>) {
    ASSIGN_OR_RETURN(member, ParseKind<Value>(std::get<std::string>(value)));
  } else if constexpr (std::is_same_v<Value, params::Encoding>) {
    ASSIGN_OR_RETURN(member, params::ParseEncoding(field.name, std::get<std::string>(value)));
  } else if constexpr (std::is_same_v<Value, RobustMean>) {
    ASSIGN_OR_RETURN(member, ParseRobustMean(std::get<std::string>(value)));
  } else if constexpr (std::is_same_v<Value, int>) {
    const int64_t number = std::get<int64_t>(value);
    RETURN_IF_ERROR(CheckWholeRange(field.name, number, std::numeric_limits<int>::min(),
                                    std::numeric_limits<int>::max()));
    member = static_cast<int>(number);
  } else {
    member = std::get<Value>(value);
  }
  return absl::OkStatus();
}

template <typename Owner>
auto& Reach(Owner& owner) {
  return owner;
}
template <typename Owner, typename Member, typename... Members>
auto& Reach(Owner& owner, Member member, Members... members) {
  return Reach(owner.*member, members...);
}

// Returns the row of one field. `kPath` are pointers to members: the member of JobSpec, the member
// of that member, and so on.
template <auto... kPath>
constexpr JobField Row(JobField field) {
  field.type = TypeOfMember<
      std::remove_cvref_t<decltype(Reach(std::declval<const JobSpec&>(), kPath...))>>();
  field.get = [](const JobSpec& job) { return ToValue(Reach(job, kPath...)); };
  field.set = [](const JobField& self, const JobValue& value, JobSpec& job) {
    return FromValue(self, value, Reach(job, kPath...));
  };
  return field;
}

absl::Status SetDropout(const JobField& /*field*/, const JobValue& value, JobSpec& job) {
  const double dropout = std::get<double>(value);
  if (dropout == kDropoutOfModel) return absl::OkStatus();
  params::GptSpec* const gpt = std::get_if<params::GptSpec>(&job.model.architecture);
  if (gpt == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dropout=", dropout, ": model '", job.model.name,
                     "' is no gpt, and only a gpt has dropout; leave the flag out"));
  }
  if (!(dropout >= 0.0 && dropout < 1.0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dropout=", dropout,
                     ": allowed is 0 <= value < 1, or -1 for the value in the model's file"));
  }
  gpt->dropout = dropout;
  return absl::OkStatus();
}

constexpr JobField DropoutRow(JobField field) {
  field.type = Type::kDouble;
  field.get = [](const JobSpec& job) -> JobValue {
    const params::GptSpec* const gpt = std::get_if<params::GptSpec>(&job.model.architecture);
    return gpt == nullptr ? 0.0 : gpt->dropout;
  };
  field.set = SetDropout;
  return field;
}

// Returns the row of a parameter of --push_encoding=topk. With other encodings the field has its
// default, and setting it has no effect.
template <int (params::Encoding::*kParameter)() const>
constexpr JobField TopKRow(JobField field) {
  constexpr bool kIsTopK = kParameter == &params::Encoding::topk;
  field.type = Type::kInt32;
  field.get = [](const JobSpec& job) -> JobValue {
    const params::Encoding encoding =
        SendsTopK(job) ? job.push_encoding
                       : params::Encoding::TopK(params::kDefaultTopK, params::kDefaultTopKBits);
    return int64_t{(encoding.*kParameter)()};
  };
  field.set = [](const JobField& /*field*/, const JobValue& value, JobSpec& job) {
    if (!SendsTopK(job)) return absl::OkStatus();
    const int64_t number = std::get<int64_t>(value);
    absl::StatusOr<params::Encoding> made =
        params::MakeTopK(kIsTopK ? number : job.push_encoding.topk(),
                         kIsTopK ? job.push_encoding.topk_bits() : number);
    if (made.ok()) job.push_encoding = *made;
    return made.status();
  };
  return field;
}

// clang-format off
constexpr JobField kFields[] = {
    Row<&JobSpec::mode>({
        .name = "mode", .group = kModeGroup, .takes_auto = true, .wire = "mode",
        .absent = Absent::kIsRefused, .is_site_state = true, .is_inner_state = true,
        .is_exchange = true, .is_planned = true,
        .help = "How strictly workers move together: sync, async, local_sgd, async_local_sgd or "
                "auto. With sync, a round applies the mean gradient of all workers. With async, "
                "each gradient is applied when it arrives. With local_sgd, each worker makes "
                "--local_steps steps alone, then --outer_optimizer combines the workers. With "
                "async_local_sgd, each such contribution is applied when it arrives, and no worker "
                "waits for another. With auto, the job first runs some rounds only to measure "
                "steps and network, and discards their results. It then chooses sync or local_sgd. "
                "It also chooses those of --local_steps, --fragments, --overlap_steps and the "
                "encodings that are not given. The aim is that workers compute 95 % of the time. "
                "With auto, --rounds, --warmup_rounds and --eval_every count steps."}),
    Row<&JobSpec::seed>({
        .name = "seed", .group = kModelGroup, .wire = "seed", .is_site_state = true,
        .is_inner_state = true,
        .help = "Seed of the first weights, of the order of samples and of dropout."}),
    DropoutRow({
        .name = "dropout", .group = kModelGroup, .flag_default = "-1", .is_site_state = true,
        .help = "Share of the activations that training drops, 0 <= value < 1; only for a gpt. "
                "-1 means the value in the model's file, which is 0 for presets."}),
    Row<&JobSpec::schedule, &LearningRateSchedule::total_rounds>({
        .name = "rounds", .group = kLengthGroup, .flag_default = "2000",
        .range = Whole(1, kMaxRounds), .wire = "schedule.total_rounds",
        .help = "Length of the job in rounds, at least 1. In async, each push counts as a "
                "round. If the job chooses its mode, local steps or fragments itself (auto), "
                "the length is in steps of a worker."}),
    Row<&JobSpec::batch_size>({
        .name = "batch_size", .group = kLengthGroup, .range = Whole(0, kMaxStepSamples),
        .wire = "batch_size", .is_site_state = true,
        .help = "Samples per worker and step, at most 1048576. 0 means that --global_batch_size or "
                "--global_tokens sets it. If none of the three flags is given, a worker takes 12 "
                "samples. But for a gpt with 100 million parameters or more in sync, all workers "
                "together take 524288 tokens per step."}),
    Row<&JobSpec::global_batch_size>({
        .name = "global_batch_size", .group = kLengthGroup, .range = Whole(0, kMaxStepSamples),
        .wire = "global_batch_size", .is_site_state = true,
        .help = "Samples per step of all workers together, split evenly, at most 1048576. 0 "
                "means that --batch_size or --global_tokens sets it. It cannot be combined with "
                "either flag."}),
    Row<&JobSpec::optimizer, &OptimizerSettings::kind>({
        .name = "optimizer", .group = kOptimizerGroup, .wire = "optimizer.kind",
        .absent = Absent::kIsRefused, .is_site_state = true, .is_inner_state = true,
        .is_planned = true,
        .help = "Optimizer of the model: sgd, momentum, nesterov, adamw or reduce. It runs on "
                "the servers in sync and async, and on each worker with local steps. With "
                "reduce, the servers make no step, and workers pull the mean gradient of a "
                "round. Use reduce in sync with --model=client if programs make the steps "
                "themselves. --clip_norm then limits the norm of the mean gradient, and "
                "--norm_limit the norms of single gradients."}),
    Row<&JobSpec::schedule, &LearningRateSchedule::peak>({
        .name = "learning_rate", .group = kOptimizerGroup, .range = Real(0, kMaxRate),
        .wire = "schedule.peak", .is_planned = true,
        .help = "Learning rate after warm-up, 0 to 1e6."}),
    Row<&JobSpec::schedule, &LearningRateSchedule::minimum>({
        .name = "min_learning_rate", .group = kOptimizerGroup, .range = Real(0, kMaxRate),
        .wire = "schedule.minimum",
        .counts = [](const JobSpec& job) { return job.schedule.falls(); },
        .counts_with = "--lr_schedule=cosine or linear", .is_planned = true,
        .help = "Learning rate at the end of the job, 0 to 1e6. Only with --lr_schedule=cosine "
                "or linear."}),
    Row<&JobSpec::schedule, &LearningRateSchedule::kind>({
        .name = "lr_schedule", .group = kOptimizerGroup, .wire = "schedule.kind",
        .absent = Absent::kIsRefused, .is_planned = true,
        .help = "Course of the learning rate after warm-up: constant, cosine, linear or program. "
                "With cosine and linear it falls to --min_learning_rate. With program "
                "(--model=client) the rates of the programs' optimizers are used. That is the "
                "default of PyTorch programs if no flag of the learning rate is given."}),
    Row<&JobSpec::schedule, &LearningRateSchedule::warmup_rounds>({
        .name = "warmup_rounds", .group = kOptimizerGroup, .range = Whole(0, kMaxRounds),
        .wire = "schedule.warmup_rounds",
        .help = "Number of rounds in which the learning rate rises to --learning_rate, 0 to "
                "--rounds. 0 means no warm-up."}),
    Row<&JobSpec::optimizer, &OptimizerSettings::weight_decay>({
        .name = "weight_decay", .group = kOptimizerGroup, .range = Real(0, kMaxRate),
        .wire = "optimizer.weight_decay",
        .counts = [](const JobSpec& job) { return !ReducesOnly(job); },
        .counts_with = "--optimizer other than reduce", .is_site_state = true,
        .help = "Decoupled weight decay (as in AdamW) of weight matrices, 0 to 1e6. 0 means "
                "none."}),
    Row<&JobSpec::optimizer, &OptimizerSettings::momentum>({
        .name = "momentum", .group = kOptimizerGroup, .range = kBelowOne,
        .wire = "optimizer.momentum",
        .counts = [](const JobSpec& job) {
          return job.optimizer.kind == OptimizerKind::kMomentum ||
                 job.optimizer.kind == OptimizerKind::kNesterov;
        },
        .counts_with = "--optimizer=momentum or nesterov", .is_site_state = true,
        .help = "Momentum of --optimizer=momentum and nesterov, 0 <= value < 1."}),
    Row<&JobSpec::optimizer, &OptimizerSettings::beta1>({
        .name = "beta1", .group = kOptimizerGroup, .range = kBelowOne, .wire = "optimizer.beta1",
        .counts = IsAdamW, .counts_with = "--optimizer=adamw", .is_site_state = true,
        .help = "Decay of AdamW's running mean of gradients, 0 <= value < 1. Only with "
                "--optimizer=adamw."}),
    Row<&JobSpec::optimizer, &OptimizerSettings::beta2>({
        .name = "beta2", .group = kOptimizerGroup, .range = kBelowOne, .wire = "optimizer.beta2",
        .counts = IsAdamW, .counts_with = "--optimizer=adamw", .is_site_state = true,
        .help = "Decay of AdamW's running mean of squared gradients, 0 <= value < 1. Only with "
                "--optimizer=adamw."}),
    Row<&JobSpec::optimizer, &OptimizerSettings::epsilon>({
        .name = "epsilon", .group = kOptimizerGroup, .range = Real(kMinEpsilon, kMaxRate),
        .wire = "optimizer.epsilon", .counts = IsAdamW, .counts_with = "--optimizer=adamw",
        .is_site_state = true,
        .help = "Number that AdamW adds to the denominator, 1e-30 to 1e6. Only with "
                "--optimizer=adamw."}),
    Row<&JobSpec::clip_norm>({
        .name = "clip_norm", .group = kOptimizerGroup, .range = Real(0, kMaxNorm),
        .wire = "clip_norm", .is_site_state = true,
        .help = "Maximum norm of the gradient, 0 to 1e30. A longer gradient is scaled down to "
                "that norm. 0 means no limit."}),
    Row<&JobSpec::quorum>({
        .name = "quorum", .group = kModeGroup, .range = Whole(0, kMaxWorkers), .wire = "quorum",
        .counts = [](const JobSpec& job) {
          return job.mode == Mode::kSync ||
                 job.mode == Mode::kAsyncLocalSgd;
        },
        .counts_with = "--mode=sync or async_local_sgd",
        .help = "Number of contributions that complete a round in sync, or an outer step in "
                "async_local_sgd. In sync, later contributions are dropped and counted; the "
                "number is at most --min_workers, and 0 means all workers. In async_local_sgd, "
                "0 means as many as there are workers when the first contribution arrives."}),
    Row<&JobSpec::robust_mean>({
        .name = "robust_mean", .group = kModeGroup, .counts = HasRosters,
        .counts_with = "--mode=sync or local_sgd", .site = Site::kOwn, .is_planned = true,
        .help = "How the contributions of a round are combined, in sync and local_sgd: none, "
                "median or trimmed:K. With none, the result is their mean, which one wrong "
                "contribution can spoil. With median, each element is the middle value. With "
                "trimmed:K, each element is the mean without the K lowest and K highest values, so "
                "up to K workers may send wrong values. A round with fewer than 2K+1 contributions "
                "(median: 3) leaves out less, so set --min_workers and --keep_workers to that "
                "number or more. With median and trimmed:K, a job has at most 32 workers. While a "
                "round is open, a server holds a copy of its weights per worker."}),
    Row<&JobSpec::norm_limit>({
        .name = "norm_limit", .group = kOptimizerGroup, .range = ZeroOr(kMinNormLimit, kMaxNorm),
        .wire = "norm_limit", .site = Site::kOwn,
        .help = "Maximum norm of a worker's part of a bucket, as a multiple of the usual norm, 2 "
                "to 1e30. 0 means no limit, and that the workers' directions are not compared. "
                "Each recent round has a median norm of its workers, and the usual norm is the "
                "highest of these medians. A part above the limit is scaled down to the usual "
                "norm. A worker that exceeds the limit in 20 of 100 rounds raises an alarm; see "
                "--poison_limit. If half of a round's workers exceed the limit, that round counts "
                "against no worker."}),
    Row<&JobSpec::max_rounds_ahead>({
        .name = "max_rounds_ahead", .group = kModeGroup, .range = Whole(-1, 1 << 30),
        .wire = "max_rounds_ahead",
        .counts = [](const JobSpec& job) {
          return job.mode == Mode::kAsync ||
                 job.mode == Mode::kAsyncLocalSgd;
        },
        .counts_with = "--mode=async or async_local_sgd",
        .help = "Maximum number of rounds that a worker may be ahead of the slowest, in async "
                "and async_local_sgd. -1 means no limit. In async, 0 means lock step; "
                "async_local_sgd takes -1, or 1 and more."}),
    Row<&JobSpec::max_staleness>({
        .name = "max_staleness", .group = kModeGroup, .range = Whole(-1, kMaxRounds),
        .wire = "max_staleness", .absent = Absent::kIsDefault, .counts = IsAsyncLocalSgd,
        .counts_with = "--mode=async_local_sgd",
        .help = "Maximum number of updates between the weights that a contribution was computed "
                "on and those that it is applied to, in async_local_sgd. An older contribution "
                "is dropped and counted as late. -1 means no limit. With N workers, N-1 is "
                "usual."}),
    Row<&JobSpec::balance>({
        .name = "balance", .group = kModeGroup, .wire = "balance", .absent = Absent::kIsDefault,
        .counts = [](const JobSpec& job) { return job.mode != Mode::kAsync; },
        .counts_with = "--mode=sync, local_sgd or async_local_sgd", .site = Site::kOwn,
        .help = "How work is divided among the workers: equal or speed. With equal, all workers "
                "compute the same number of samples of a step. With speed, a worker that was "
                "faster in its last rounds computes more samples, so that fast workers hardly "
                "wait. The number of samples of a step stays the same, and a contribution counts "
                "in proportion to its samples. In async_local_sgd, speed divides --local_steps "
                "instead of samples. The value speed is refused in async."}),
    // This field has no effect in lock step, because no contribution is stale there.
    Row<&JobSpec::staleness_scaling>({
        .name = "staleness_scaling", .group = kModeGroup, .wire = "staleness_scaling",
        .absent = Absent::kIsRefused,
        .counts = [](const JobSpec& job) {
          return job.mode == Mode::kAsync &&
                 job.max_rounds_ahead != 0;
        },
        .counts_with = "--mode=async and --max_rounds_ahead other than 0",
        .help = "Whether async makes stale gradients count less: none or inverse. With inverse, "
                "the learning rate is divided by 1 + staleness."}),
    Row<&JobSpec::local_steps>({
        .name = "local_steps", .group = kModeGroup, .takes_auto = true,
        .range = Whole(1, kMaxLocalSteps), .wire = "local_steps", .counts = HasLocalSteps,
        .counts_with = "--mode=local_sgd or async_local_sgd", .site = Site::kOwnWithLocalSteps,
        .is_exchange = true, .is_planned = true,
        .help = "Number of steps that a worker makes per round, in local_sgd and "
                "async_local_sgd; 1 to 524288, or auto. More steps mean less traffic. With "
                "auto, the job chooses the number and keeps all other settings that are given. "
                "--fragments, --overlap_steps and encodings also take auto. Asynchronous modes "
                "refuse auto."}),
    Row<&JobSpec::fragments>({
        .name = "fragments", .group = kModeGroup, .takes_auto = true,
        .range = Whole(1, kMaxFragments), .wire = "fragments", .absent = Absent::kIsDefault,
        .is_exchange = true, .is_planned = true,
        .help = "Number of parts of the parameters that are exchanged in turn, in local_sgd; 1 "
                "to 64, or auto. Each part is exchanged once in --local_steps steps. With N "
                "parts, an exchange has 1/N of the traffic, and workers go on computing "
                "meanwhile."}),
    Row<&JobSpec::overlap_steps>({
        .name = "overlap_steps", .group = kModeGroup, .takes_auto = true,
        .range = Whole(0, kMaxLocalSteps), .wire = "overlap_steps", .is_exchange = true,
        .is_planned = true,
        .help = "Number of steps that a worker makes after an exchange has started and before "
                "it takes the new weights, in local_sgd. It is 0 to --local_steps/--fragments, "
                "or auto. 0 means that workers wait for the exchange. If the exchange takes "
                "longer than these steps, workers wait for the rest."}),
    Row<&JobSpec::merge>({
        .name = "merge", .group = kModeGroup, .wire = "merge", .absent = Absent::kIsDefault,
        .counts = [](const JobSpec& job) { return job.overlap_steps > 0; },
        .counts_with = "--overlap_steps above 0", .is_exchange = true,
        .help = "How a worker continues from new weights that arrive after --overlap_steps: keep "
                "or mix. With keep, the worker takes the new weights and adds the steps that it "
                "made during the exchange. With mix, it takes the share --merge_alpha of its own "
                "weights, and the rest of the new weights."}),
    Row<&JobSpec::merge_alpha>({
        .name = "merge_alpha", .group = kModeGroup, .range = Real(0, 1), .wire = "merge_alpha",
        .absent = Absent::kIsDefault, .absent_with = "merge",
        .counts = [](const JobSpec& job) {
          return job.overlap_steps > 0 &&
                 job.merge == MergeKind::kMix;
        },
        .counts_with = "--overlap_steps above 0 and --merge=mix", .is_exchange = true,
        .help = "Share of a worker's own weights with --merge=mix, 0 to 1."}),
    Row<&JobSpec::overlap_rounds>({
        .name = "overlap_rounds", .group = kModeGroup, .wire = "overlap_rounds",
        .is_exchange = true, .is_planned = true,
        .help = "Let workers make the next --local_steps during an exchange, in local_sgd with "
                "--outer_optimizer=nesterov or sgd. A worker starts them from the newest weights "
                "that have arrived, plus its own changes that are still being exchanged (eager "
                "update, arXiv:2502.12996). With nesterov, set --outer_learning_rate to 0.4 or "
                "less."}),
    Row<&JobSpec::outer_optimizer>({
        .name = "outer_optimizer", .group = kModeGroup, .wire = "outer_optimizer",
        .absent = Absent::kIsRefused, .counts = HasLocalSteps,
        .counts_with = "--mode=local_sgd or async_local_sgd", .site = Site::kOwnWithLocalSteps,
        .is_exchange = true, .is_planned = true,
        .help = "What servers do with the mean change of the workers' weights: average, sgd, "
                "nesterov, adam or easgd. Used in local_sgd; async_local_sgd takes nesterov and "
                "sgd. With average, the new weights are the mean of the workers' weights. The "
                "others make a step: nesterov as in DiLoCo, adam as in FedAdam. With easgd "
                "(elastic averaging, arXiv:1412.6651), workers keep their own weights and compute "
                "during the exchange. In an exchange of N workers, each worker's weights become "
                "(1-beta/N) times themselves plus beta/N times the servers' weights. The servers' "
                "weights become (1-beta) times themselves plus beta times the workers' mean. Beta "
                "is --outer_learning_rate."}),
    Row<&JobSpec::outer_learning_rate>({
        .name = "outer_learning_rate", .group = kModeGroup, .range = Real(0, kMaxRate),
        .wire = "outer_learning_rate",
        .counts = [](const JobSpec& job) {
          return HasLocalSteps(job) &&
                 job.outer_optimizer != OuterOptimizerKind::kAverage;
        },
        .counts_with = "--outer_optimizer=nesterov, sgd, adam or easgd with local steps",
        .site = Site::kOwnWithLocalSteps, .is_exchange = true, .is_planned = true,
        .help = "Learning rate of the outer optimizer sgd, nesterov or adam, 0 to 1e6. With easgd, "
                "it is beta, 0 to 1; if the flag is not given, beta is 0.9."}),
    Row<&JobSpec::outer_momentum>({
        .name = "outer_momentum", .group = kModeGroup, .flag_default = "0.5", .range = kBelowOne,
        .wire = "outer_momentum",
        .counts = [](const JobSpec& job) {
          return HasLocalSteps(job) &&
                 (job.outer_optimizer == OuterOptimizerKind::kNesterov || IsOuterAdam(job));
        },
        .counts_with = "--outer_optimizer=nesterov or adam with local steps",
        .site = Site::kOwnWithLocalSteps, .is_exchange = true, .is_planned = true,
        .help = "Momentum of the outer optimizer nesterov, or beta1 of adam, 0 <= value < 1. If "
                "the flag is not given, adam uses 0.9 and async_local_sgd uses 0.8. With nesterov, "
                "keep --outer_learning_rate / (1 - momentum) at 1.5 or less unless the job is "
                "long. Short jobs from scratch had up to 27 % more loss with 0.6 and 0.9."}),
    Row<&JobSpec::outer_beta2>({
        .name = "outer_beta2", .group = kModeGroup, .range = kBelowOne, .wire = "outer_beta2",
        .absent = Absent::kIsDefault, .absent_with = "outer_epsilon", .counts = IsOuterAdam,
        .counts_with = "--mode=local_sgd --outer_optimizer=adam", .site = Site::kOwnWithLocalSteps,
        .is_exchange = true,
        .help = "Decay of the running mean of squares of --outer_optimizer=adam, 0 <= value < 1."}),
    Row<&JobSpec::outer_epsilon>({
        .name = "outer_epsilon", .group = kModeGroup, .range = Real(kMinEpsilon, kMaxRate),
        .wire = "outer_epsilon", .absent = Absent::kIsDefault, .counts = IsOuterAdam,
        .counts_with = "--mode=local_sgd --outer_optimizer=adam", .site = Site::kOwnWithLocalSteps,
        .is_exchange = true,
        .help = "Number that --outer_optimizer=adam adds to the denominator, 1e-30 to 1e6. With "
                "much smaller values than the default, jobs diverge."}),
    Row<&JobSpec::outer_reduction>({
        .name = "outer_reduction", .group = kModeGroup, .wire = "outer_reduction",
        .absent = Absent::kIsDefault,
        .counts = [](const JobSpec& job) { return job.mode == Mode::kLocalSgd; },
        .counts_with = "--mode=local_sgd", .site = Site::kOwnWithLocalSteps,
        .help = "How servers combine the contributions of a round in local_sgd: mean or "
                "direction. With mean, the result is their mean, which is shorter if their "
                "directions differ. With direction, each tensor gets the mean direction with the "
                "mean length (Decoupled DiLoCo, arXiv:2604.21428); embeddings get the mean. "
                "Steps then keep their length if workers join or leave. The value direction is "
                "refused with --outer_optimizer=average. Servers hold one more copy of the "
                "parameters while a round is open."}),
    Row<&JobSpec::momentum_correction>({
        .name = "momentum_correction", .group = kModeGroup, .wire = "momentum_correction",
        .absent = Absent::kIsDefault, .counts = IsAsyncLocalSgd,
        .counts_with = "--mode=async_local_sgd",
        .help = "Correction of contributions that oppose the outer momentum: none or heloco. "
                "Stale contributions, and contributions from unlike data, oppose it. Used in "
                "async_local_sgd with nesterov. With heloco (arXiv:2606.00271), the part of a "
                "tensor that points against the momentum is made smaller. A tensor almost at a "
                "right angle to the momentum is turned towards it. Set --outer_momentum to 0.5 "
                "to 0.7 with it."}),
    Row<&JobSpec::anchor>({
        .name = "anchor", .group = kModeGroup, .wire = "anchor", .absent = Absent::kIsDefault,
        .counts = IsAsyncLocalSgd, .counts_with = "--mode=async_local_sgd",
        .help = "Weights from which a contribution's change is measured when it is applied, in "
                "async_local_sgd: worker or server. With worker, these are the weights that the "
                "contribution was computed on, so a late change is added to the changes of "
                "other workers. With server, these are the servers' current weights. The step "
                "then leads towards the worker's weights, and undoes a part of other workers' "
                "changes. Both are the same if no update came in between. The value server "
                "requires fp32 as --push_encoding and --pull_encoding."}),
    Row<&JobSpec::push_encoding>({
        .name = "push_encoding", .group = kWireGroup, .takes_auto = true, .site = Site::kOwn,
        .is_exchange = true, .is_planned = true,
        .help = "Encoding of what workers send: fp32, bf16, fp16, int8, int4, topk or auto. "
                "Smaller encodings save traffic and lose precision. In int8 and int4, blocks of "
                "256 and 128 elements share a scale. With topk, only the largest of each 4096 "
                "elements are sent; see --topk. With auto, the job chooses, in sync and "
                "local_sgd. Servers always sum in fp32."}),
    Row<&JobSpec::pull_encoding>({
        .name = "pull_encoding", .group = kWireGroup, .takes_auto = true, .is_exchange = true,
        .is_planned = true,
        .help = "Encoding of what workers receive: fp32, bf16, fp16, int8, int4 or auto. With "
                "fp32, workers get the weights. With smaller encodings they get the changes of "
                "the weights, and servers hold one more copy of the parameters. With auto, the "
                "job chooses."}),
    TopKRow<&params::Encoding::topk>({
        .name = "topk", .group = kWireGroup, .counts = SendsTopK,
        .counts_with = "--push_encoding=topk", .site = Site::kOwn, .is_exchange = true,
        .is_planned = true,
        .help = "How many of each 4096 elements are sent, 1 to 1024. The largest ones are sent. "
                "Only with --push_encoding=topk."}),
    TopKRow<&params::Encoding::topk_bits>({
        .name = "topk_bits", .group = kWireGroup, .counts = SendsTopK,
        .counts_with = "--push_encoding=topk", .site = Site::kOwn, .is_exchange = true,
        .is_planned = true,
        .help = "Number of bits of each sent element, 2 or 4, in addition to 12 bits for its "
                "position. Only with --push_encoding=topk."}),
    Row<&JobSpec::topk_divisor>({
        .name = "topk_divisor", .group = kWireGroup, .wire = "topk_divisor",
        .absent = Absent::kIsDefault,
        .counts = [](const JobSpec& job) { return SendsTopK(job) && HasRosters(job); },
        .counts_with = "--push_encoding=topk and --mode=sync or local_sgd", .site = Site::kOwn,
        .is_exchange = true, .is_planned = true,
        .help = "By what the sum of an element is divided: workers or senders. With workers, "
                "the divisor is the weight of all contributions. With senders, it is the weight "
                "of the contributions that sent the element. SparseLoCo uses workers, CCLoco "
                "senders. With senders, steps are longer, at most by a factor of the number of "
                "workers. Only with --push_encoding=topk in sync and local_sgd."}),
    Row<&JobSpec::error_feedback>({
        .name = "error_feedback", .group = kWireGroup, .wire = "error_feedback",
        .counts = [](const JobSpec& job) {
          return job.push_encoding != params::Encoding::kFp32 ||
                 job.pull_encoding != params::Encoding::kFp32;
        },
        .counts_with = "--push_encoding or --pull_encoding other than fp32", .site = Site::kOwn,
        .is_planned = true,
        .help = "Add what an encoding loses to the next contribution or change, so that the "
                "losses do not add up. Turn it off only for comparison. Error feedback cannot be "
                "off with topk."}),
    Row<&JobSpec::feedback_decay>({
        .name = "feedback_decay", .group = kWireGroup, .flag_default = "0",
        .wire = "feedback_decay", .absent = Absent::kIsDefault,
        .counts = [](const JobSpec& job) {
          return job.push_encoding != params::Encoding::kFp32 &&
                 job.error_feedback;
        },
        .counts_with = "--push_encoding other than fp32 and --error_feedback", .site = Site::kOwn,
        .is_exchange = true,
        .help = "Factor by which a worker multiplies its residual (what encodings have lost) "
                "before it adds the residual to its next contribution, above 0 and at most 1. 0 "
                "means 0.95 with --push_encoding=topk (as in SparseLoCo), and 1 with other "
                "encodings."}),
    Row<&JobSpec::min_workers>({
        .name = "min_workers", .group = kModeGroup, .range = Whole(1, kMaxWorkers),
        .wire = "min_workers", .site = Site::kOwn, .is_of_coordinator = true,
        .help = "Number of workers that must have joined before the job starts, at least 1. "
                "This also applies when a server is started again."}),
    Row<&JobSpec::keep_workers>({
        .name = "keep_workers", .group = kModeGroup, .wire = "keep_workers",
        .absent = Absent::kIsDefault, .site = Site::kOwn, .is_of_coordinator = true,
        .help = "Number of workers below which a started job waits for workers to come back, 1 "
                "to --min_workers."}),
    Row<&JobSpec::eval_every>({
        .name = "eval_every", .group = kLengthGroup, .range = Whole(0, kMaxRounds),
        .wire = "eval_every", .is_of_coordinator = true,
        .help = "Number of rounds between evaluations on held-out samples. 0 means only at the "
                "end."}),
    Row<&JobSpec::eval_samples>({
        .name = "eval_samples", .group = kLengthGroup, .flag_default = "10000",
        .range = Whole(0, kMaxRounds), .wire = "eval_samples", .is_of_coordinator = true,
        .help = "Maximum number of held-out samples per evaluation, spread evenly over all of "
                "them. 0 means all."}),
    Row<&JobSpec::bucket_bytes>({
        .name = "bucket_bytes", .group = kModelGroup,
        .range = Whole(sizeof(float), kMaxBucketBytes), .wire = "bucket_bytes", .site = Site::kOwn,
        .is_planned = true,
        .help = "Maximum size of a bucket in bytes of fp32, 4 to 1073741824. A bucket is the "
                "unit of aggregation and transfer."}),
};
// clang-format on

// Returns the shortest text that reads back to the same bits.
std::string TextOfDouble(double value) {
  constexpr int kMaxDigits = 17;
  std::string text;
  for (int digits = 6; digits <= kMaxDigits; ++digits) {
    text = absl::StrFormat("%.*g", digits, value);
    if (std::strtod(text.c_str(), nullptr) == value) break;
  }
  return text;
}

// Returns an error that says which numbers the field takes, if its type is `Int`.
template <typename Int>
absl::Status WantsWholeNumber(const JobField& field) {
  if (field.range.kind == NumberRange::Kind::kWhole) {
    return absl::InvalidArgumentError(absl::StrCat("a whole number from ",
                                                   static_cast<int64_t>(field.range.lowest), " to ",
                                                   static_cast<int64_t>(field.range.highest)));
  }
  return absl::InvalidArgumentError(absl::StrCat("a whole number from ",
                                                 std::numeric_limits<Int>::min(), " to ",
                                                 std::numeric_limits<Int>::max()));
}

// Reads a value. Errors: InvalidArgument that says which form is wanted.
absl::StatusOr<JobValue> ParseValue(const JobField& field, absl::string_view text) {
  bool flag = false;
  int32_t small = 0;
  int64_t whole = 0;
  uint64_t natural = 0;
  double real = 0.0;
  switch (field.type) {
    case Type::kBool:
      if (absl::SimpleAtob(text, &flag)) return flag;
      return absl::InvalidArgumentError("true or false");
    case Type::kInt32:
      if (absl::SimpleAtoi(text, &small)) return int64_t{small};
      return WantsWholeNumber<int32_t>(field);
    case Type::kInt64:
      if (absl::SimpleAtoi(text, &whole)) return whole;
      return WantsWholeNumber<int64_t>(field);
    case Type::kUint64:
      if (absl::SimpleAtoi(text, &natural)) return natural;
      return WantsWholeNumber<uint64_t>(field);
    case Type::kDouble:
      if (absl::SimpleAtod(text, &real)) return real;
      return absl::InvalidArgumentError("a number");
    case Type::kText:
      return std::string(text);
  }
  return absl::InternalError("of a known type");
}

double NumberOf(const JobValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  return std::get<double>(value);
}

absl::Status CheckFieldRange(const JobField& field, const JobSpec& job) {
  const NumberRange& range = field.range;
  if (range.kind == NumberRange::Kind::kAny) return absl::OkStatus();
  const JobValue value = field.get(job);
  const double number = NumberOf(value);
  switch (range.kind) {
    case NumberRange::Kind::kAny:
      return absl::OkStatus();
    case NumberRange::Kind::kWhole:
      return CheckWholeRange(field.name, std::get<int64_t>(value),
                             static_cast<int64_t>(range.lowest),
                             static_cast<int64_t>(range.highest));
    case NumberRange::Kind::kZeroOrReal:
      if (number == 0.0) return absl::OkStatus();
      [[fallthrough]];
    case NumberRange::Kind::kReal:
      return CheckRange(field.name, number, range.lowest, range.highest);
    case NumberRange::Kind::kBelowOne:
      if (number >= 0.0 && number < 1.0) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(
          "--", field.name, "=", number, " is out of range; allowed is 0 <= value < 1"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<const JobField> JobFields() { return kFields; }

const JobField* FindJobField(absl::string_view name) {
  for (const JobField& field : kFields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

std::string TextOf(const JobValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value)) return absl::StrCat(*whole);
  if (const auto* natural = std::get_if<uint64_t>(&value)) return absl::StrCat(*natural);
  if (const auto* real = std::get_if<double>(&value)) return TextOfDouble(*real);
  return std::get<std::string>(value);
}

absl::Status SetFromText(const JobField& field, absl::string_view text, JobSpec& job) {
  const absl::StatusOr<JobValue> value = ParseValue(field, text);
  if (value.ok()) return field.set(field, *value, job);
  return absl::InvalidArgumentError(
      absl::StrCat("--", field.name, "=", text, " is not ", value.status().message()));
}

absl::Status CheckFieldRanges(const JobSpec& job) {
  for (const JobField& field : kFields) RETURN_IF_ERROR(CheckFieldRange(field, job));
  return absl::OkStatus();
}

}  // namespace lodestar::job
