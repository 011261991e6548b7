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
// Limits far above useful values, such that products of them fit into fp32.
constexpr double kMaxRate = 1e6;
constexpr double kMaxNorm = 1e30;
// Norms of contributions from workers without faults differ by up to this factor.
constexpr double kMinNormLimit = 2.0;
// A smaller value is 0 in fp32, and AdamW would then divide 0 by 0 for elements without a gradient.
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

// Returns the row of one member. `kPath` is the pointers to members that lead from JobSpec to it.
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
    return absl::InvalidArgumentError(absl::StrCat("--dropout=", dropout, ": model '",
                                                   job.model.name,
                                                   "' is no gpt, and only those drop activations"));
  }
  if (!(dropout >= 0.0 && dropout < 1.0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--dropout=", dropout, ": allowed is 0 <= value < 1, or -1 for what the model says"));
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
        .help = "How strictly workers move together. sync: one averaged gradient per round; "
                "async: each gradient is applied when it arrives; local_sgd: workers take "
                "--local_steps on their own, then --outer_optimizer combines them; "
                "async_local_sgd: the same, but what a worker has made takes effect when it "
                "comes, and nobody waits for another. auto: the job measures steps and paths in "
                "some rounds that are not kept, and chooses sync or local_sgd, and of "
                "--local_steps, --fragments, --overlap_steps and encodings what is not given, so "
                "that workers compute for 95 % of the time, as psctl plan does; --rounds, "
                "--warmup_rounds and --eval_every then are in steps."}),
    Row<&JobSpec::seed>({
        .name = "seed", .group = kModelGroup, .wire = "seed", .is_site_state = true,
        .is_inner_state = true,
        .help = "Seed of the first weights, of the order of the samples and of what dropout "
                "drops."}),
    DropoutRow({
        .name = "dropout", .group = kModelGroup, .flag_default = "-1", .is_site_state = true,
        .help = "gpt: share of the activations that training drops, 0 <= value < 1. -1: what the "
                "model's file says; 0 for presets."}),
    Row<&JobSpec::schedule, &LearningRateSchedule::total_rounds>({
        .name = "rounds", .group = kLengthGroup, .flag_default = "2000",
        .range = Whole(1, kMaxRounds), .wire = "schedule.total_rounds",
        .help = "Length of the job; in async each push counts as a round. At least 1. In steps "
                "of a worker where the job chooses its mode, local steps or fragments itself "
                "(auto)."}),
    Row<&JobSpec::batch_size>({
        .name = "batch_size", .group = kLengthGroup, .range = Whole(0, kMaxStepSamples),
        .wire = "batch_size", .is_site_state = true,
        .help = "Samples per worker and step, at most 1048576. 0: what --global_batch_size or "
                "--global_tokens says, and without them 12, or 524288 tokens of all workers "
                "together for a gpt of 100 million parameters or more in sync."}),
    Row<&JobSpec::global_batch_size>({
        .name = "global_batch_size", .group = kLengthGroup, .range = Whole(0, kMaxStepSamples),
        .wire = "global_batch_size", .is_site_state = true,
        .help = "Samples per step of all workers together, split evenly; at most 1048576. 0: "
                "--batch_size counts. Excludes --batch_size."}),
    Row<&JobSpec::optimizer, &OptimizerSettings::kind>({
        .name = "optimizer", .group = kOptimizerGroup, .wire = "optimizer.kind",
        .absent = Absent::kIsRefused, .is_site_state = true, .is_inner_state = true,
        .is_planned = true,
        .help = "sgd, momentum, nesterov or adamw: on the servers in sync and async, on each "
                "worker in local_sgd. reduce, in sync with --model=client: the servers make no "
                "step, and what a worker pulls after a round is the mean of its gradients, for "
                "programs that make the steps themselves; --clip_norm limits its norm, "
                "--norm_limit those of single ones."}),
    Row<&JobSpec::schedule, &LearningRateSchedule::peak>({
        .name = "learning_rate", .group = kOptimizerGroup, .range = Real(0, kMaxRate),
        .wire = "schedule.peak", .is_planned = true,
        .help = "Learning rate after warm-up; 0 to 1e6."}),
    Row<&JobSpec::schedule, &LearningRateSchedule::minimum>({
        .name = "min_learning_rate", .group = kOptimizerGroup, .range = Real(0, kMaxRate),
        .wire = "schedule.minimum",
        .counts = [](const JobSpec& job) { return job.schedule.kind != ScheduleKind::kConstant; },
        .counts_with = "--lr_schedule=cosine or linear", .is_planned = true,
        .help = "Learning rate at the end of the job with --lr_schedule=cosine or linear."}),
    Row<&JobSpec::schedule, &LearningRateSchedule::kind>({
        .name = "lr_schedule", .group = kOptimizerGroup, .wire = "schedule.kind",
        .absent = Absent::kIsRefused, .is_planned = true,
        .help = "constant, cosine or linear, after warm-up."}),
    Row<&JobSpec::schedule, &LearningRateSchedule::warmup_rounds>({
        .name = "warmup_rounds", .group = kOptimizerGroup, .range = Whole(0, kMaxRounds),
        .wire = "schedule.warmup_rounds",
        .help = "Rounds over which the learning rate rises; 0 to --rounds."}),
    Row<&JobSpec::optimizer, &OptimizerSettings::weight_decay>({
        .name = "weight_decay", .group = kOptimizerGroup, .range = Real(0, kMaxRate),
        .wire = "optimizer.weight_decay",
        .counts = [](const JobSpec& job) { return !ReducesOnly(job); },
        .counts_with = "--optimizer other than reduce", .is_site_state = true,
        .help = "Decoupled weight decay of weight matrices; 0 to 1e6."}),
    Row<&JobSpec::optimizer, &OptimizerSettings::momentum>({
        .name = "momentum", .group = kOptimizerGroup, .range = kBelowOne,
        .wire = "optimizer.momentum",
        .counts = [](const JobSpec& job) {
          return job.optimizer.kind == OptimizerKind::kMomentum ||
                 job.optimizer.kind == OptimizerKind::kNesterov;
        },
        .counts_with = "--optimizer=momentum or nesterov", .is_site_state = true,
        .help = "momentum, nesterov: 0 <= value < 1."}),
    Row<&JobSpec::optimizer, &OptimizerSettings::beta1>({
        .name = "beta1", .group = kOptimizerGroup, .range = kBelowOne, .wire = "optimizer.beta1",
        .counts = IsAdamW, .counts_with = "--optimizer=adamw", .is_site_state = true,
        .help = "adamw: decay of the mean; 0 <= value < 1."}),
    Row<&JobSpec::optimizer, &OptimizerSettings::beta2>({
        .name = "beta2", .group = kOptimizerGroup, .range = kBelowOne, .wire = "optimizer.beta2",
        .counts = IsAdamW, .counts_with = "--optimizer=adamw", .is_site_state = true,
        .help = "adamw: decay of the mean square; 0 <= value < 1."}),
    Row<&JobSpec::optimizer, &OptimizerSettings::epsilon>({
        .name = "epsilon", .group = kOptimizerGroup, .range = Real(kMinEpsilon, kMaxRate),
        .wire = "optimizer.epsilon", .counts = IsAdamW, .counts_with = "--optimizer=adamw",
        .is_site_state = true,
        .help = "adamw: added to the denominator; 1e-30 to 1e6."}),
    Row<&JobSpec::clip_norm>({
        .name = "clip_norm", .group = kOptimizerGroup, .range = Real(0, kMaxNorm),
        .wire = "clip_norm", .is_site_state = true,
        .help = "Limit of the gradient's norm; 0: none."}),
    Row<&JobSpec::quorum>({
        .name = "quorum", .group = kModeGroup, .range = Whole(0, kMaxWorkers), .wire = "quorum",
        .counts = [](const JobSpec& job) {
          return job.mode == Mode::kSync ||
                 job.mode == Mode::kAsyncLocalSgd;
        },
        .counts_with = "--mode=sync or async_local_sgd",
        .help = "sync: a round commits with the first that many contributions, later ones are "
                "dropped and counted; at most --min_workers. 0: everyone's. async_local_sgd: "
                "that many contributions make an outer step. 0: as many as there are workers "
                "when its first one comes."}),
    Row<&JobSpec::robust_mean>({
        .name = "robust_mean", .group = kModeGroup, .counts = HasRosters,
        .counts_with = "--mode=sync or local_sgd", .site = Site::kOwn, .is_planned = true,
        .help = "sync, local_sgd: how the contributions of a round are combined. none: their "
                "mean, which a single wild one leads astray. median: element by element, the "
                "value in the middle. trimmed:K: element by element, the mean without the K "
                "lowest and the K highest values, so that up to K workers may send what they "
                "like. Of rounds with fewer contributions than 2K+1 (median: 3) less is left "
                "out, so that a wild one counts: give --min_workers and --keep_workers at least "
                "that. For up to 32 workers; while a round is open, a server holds a copy of its "
                "weights for every worker."}),
    Row<&JobSpec::norm_limit>({
        .name = "norm_limit", .group = kOptimizerGroup, .range = ZeroOr(kMinNormLimit, kMaxNorm),
        .wire = "norm_limit", .site = Site::kOwn,
        .help = "How many times the usual norm a worker's part of a bucket may have, 2 to 1e30: "
                "the highest that the median of a round's workers was of late. What is beyond "
                "counts as if it had that norm, and is an alarm in 20 of 100 rounds; see "
                "--poison_limit. Where half of the workers are beyond, nobody is to blame. 0: "
                "any norm counts, and nobody looks at directions either."}),
    Row<&JobSpec::max_rounds_ahead>({
        .name = "max_rounds_ahead", .group = kModeGroup, .range = Whole(-1, 1 << 30),
        .wire = "max_rounds_ahead",
        .counts = [](const JobSpec& job) {
          return job.mode == Mode::kAsync ||
                 job.mode == Mode::kAsyncLocalSgd;
        },
        .counts_with = "--mode=async or async_local_sgd",
        .help = "async: rounds that a worker may be ahead of the slowest; 0: lock step; -1: no "
                "limit."}),
    Row<&JobSpec::max_staleness>({
        .name = "max_staleness", .group = kModeGroup, .range = Whole(-1, kMaxRounds),
        .wire = "max_staleness", .absent = Absent::kIsDefault, .counts = IsAsyncLocalSgd,
        .counts_with = "--mode=async_local_sgd",
        .help = "async_local_sgd: a contribution that was computed on weights more updates old "
                "than this is dropped and counted as late; with N workers N-1 are usual. -1: "
                "none is."}),
    Row<&JobSpec::balance>({
        .name = "balance", .group = kModeGroup, .wire = "balance", .absent = Absent::kIsDefault,
        .counts = [](const JobSpec& job) { return job.mode != Mode::kAsync; },
        .counts_with = "--mode=sync, local_sgd or async_local_sgd", .site = Site::kOwn,
        .help = "equal: workers get equal parts of each step's samples. speed: each gets as many "
                "as it computes in the time that the others need for theirs, by what it took in "
                "its last rounds, so that a round waits for nobody; the samples of a step are "
                "the same, and contributions weigh as many as they have. In async_local_sgd each "
                "gets as many of the --local_steps."}),
    // Without lateness (in lock step) no contribution is stale.
    Row<&JobSpec::staleness_scaling>({
        .name = "staleness_scaling", .group = kModeGroup, .wire = "staleness_scaling",
        .absent = Absent::kIsRefused,
        .counts = [](const JobSpec& job) {
          return job.mode == Mode::kAsync &&
                 job.max_rounds_ahead != 0;
        },
        .counts_with = "--mode=async and --max_rounds_ahead other than 0",
        .help = "async: none, or inverse: the learning rate is divided by 1 + staleness."}),
    Row<&JobSpec::local_steps>({
        .name = "local_steps", .group = kModeGroup, .takes_auto = true,
        .range = Whole(1, kMaxLocalSteps), .wire = "local_steps", .counts = HasLocalSteps,
        .counts_with = "--mode=local_sgd or async_local_sgd", .site = Site::kOwnWithLocalSteps,
        .is_exchange = true, .is_planned = true,
        .help = "local_sgd, async_local_sgd: steps on a worker per round; 1 to 524288. auto, "
                "here and of --fragments, --overlap_steps and encodings: the job chooses that "
                "and keeps the rest as it is given, as with --mode=auto; not of asynchronous "
                "modes."}),
    Row<&JobSpec::fragments>({
        .name = "fragments", .group = kModeGroup, .takes_auto = true,
        .range = Whole(1, kMaxFragments), .wire = "fragments", .absent = Absent::kIsDefault,
        .is_exchange = true, .is_planned = true,
        .help = "local_sgd: parts of the parameters that are exchanged in turn, 1 to 64, or "
                "auto: each once in --local_steps steps, so that there are that many rounds in a "
                "cycle, each with so much less traffic, while workers go on computing."}),
    Row<&JobSpec::overlap_steps>({
        .name = "overlap_steps", .group = kModeGroup, .takes_auto = true,
        .range = Whole(0, kMaxLocalSteps), .wire = "overlap_steps", .is_exchange = true,
        .is_planned = true,
        .help = "local_sgd: steps that a worker makes after an exchange has begun and before it "
                "has the new weights; 0 to --local_steps/--fragments, or auto. Longer exchanges "
                "than these steps are waited for."}),
    Row<&JobSpec::merge>({
        .name = "merge", .group = kModeGroup, .wire = "merge", .absent = Absent::kIsDefault,
        .counts = [](const JobSpec& job) { return job.overlap_steps > 0; },
        .counts_with = "--overlap_steps above 0", .is_exchange = true,
        .help = "local_sgd with --overlap_steps: what becomes of a worker's own weights then. "
                "keep: the new ones and the steps made meanwhile; mix: --merge_alpha of its own "
                "and the rest of the new ones."}),
    Row<&JobSpec::merge_alpha>({
        .name = "merge_alpha", .group = kModeGroup, .range = Real(0, 1), .wire = "merge_alpha",
        .absent = Absent::kIsDefault, .absent_with = "merge",
        .counts = [](const JobSpec& job) {
          return job.overlap_steps > 0 &&
                 job.merge == MergeKind::kMix;
        },
        .counts_with = "--overlap_steps above 0 and --merge=mix", .is_exchange = true,
        .help = "local_sgd with --merge=mix: share of a worker's own weights; 0 to 1."}),
    Row<&JobSpec::overlap_rounds>({
        .name = "overlap_rounds", .group = kModeGroup, .wire = "overlap_rounds",
        .is_exchange = true, .is_planned = true,
        .help = "local_sgd with nesterov or sgd: workers make the next --local_steps during an "
                "exchange, and go on from the last weights that have come and their own part of "
                "the round under way (eager update, 2502.12996). With nesterov give an "
                "--outer_learning_rate of 0.4 or less."}),
    Row<&JobSpec::outer_optimizer>({
        .name = "outer_optimizer", .group = kModeGroup, .wire = "outer_optimizer",
        .absent = Absent::kIsRefused, .counts = HasLocalSteps,
        .counts_with = "--mode=local_sgd or async_local_sgd", .site = Site::kOwnWithLocalSteps,
        .is_exchange = true, .is_planned = true,
        .help = "local_sgd: what the servers do with the mean of what rounds changed: average "
                "(the mean of the workers' weights), sgd, nesterov (DiLoCo), adam (FedAdam) or "
                "easgd (elastic averaging, 1412.6651: workers keep weights of their own; with N "
                "of them each exchange moves those a part beta/N of the way to the servers', and "
                "the servers' beta of the way to their mean, while they go on computing)."}),
    Row<&JobSpec::outer_learning_rate>({
        .name = "outer_learning_rate", .group = kModeGroup, .range = Real(0, kMaxRate),
        .wire = "outer_learning_rate",
        .counts = [](const JobSpec& job) {
          return HasLocalSteps(job) &&
                 job.outer_optimizer != OuterOptimizerKind::kAverage;
        },
        .counts_with = "--outer_optimizer=nesterov, sgd, adam or easgd with local steps",
        .site = Site::kOwnWithLocalSteps, .is_exchange = true, .is_planned = true,
        .help = "Local steps with sgd, nesterov, adam: outer step size; 0 to 1e6. With easgd "
                "beta; 0 to 1, and 0.9 where it is not given."}),
    Row<&JobSpec::outer_momentum>({
        .name = "outer_momentum", .group = kModeGroup, .flag_default = "0.5", .range = kBelowOne,
        .wire = "outer_momentum",
        .counts = [](const JobSpec& job) {
          return HasLocalSteps(job) &&
                 (job.outer_optimizer == OuterOptimizerKind::kNesterov || IsOuterAdam(job));
        },
        .counts_with = "--outer_optimizer=nesterov or adam with local steps",
        .site = Site::kOwnWithLocalSteps, .is_exchange = true, .is_planned = true,
        .help = "Local steps with nesterov: outer momentum; 0 <= value < 1. Keep "
                "--outer_learning_rate / (1 - this) at 1.5 or less unless the job is long: short "
                "jobs from scratch lost up to 27 % with 0.6 and 0.9. With adam its beta1, which "
                "is 0.9 if this is not given. async_local_sgd has 0.8 if this is not given."}),
    Row<&JobSpec::outer_beta2>({
        .name = "outer_beta2", .group = kModeGroup, .range = kBelowOne, .wire = "outer_beta2",
        .absent = Absent::kIsDefault, .absent_with = "outer_epsilon", .counts = IsOuterAdam,
        .counts_with = "--mode=local_sgd --outer_optimizer=adam", .site = Site::kOwnWithLocalSteps,
        .is_exchange = true,
        .help = "local_sgd with adam: 0 <= value < 1."}),
    Row<&JobSpec::outer_epsilon>({
        .name = "outer_epsilon", .group = kModeGroup, .range = Real(kMinEpsilon, kMaxRate),
        .wire = "outer_epsilon", .absent = Absent::kIsDefault, .counts = IsOuterAdam,
        .counts_with = "--mode=local_sgd --outer_optimizer=adam", .site = Site::kOwnWithLocalSteps,
        .is_exchange = true,
        .help = "local_sgd with adam: 1e-30 to 1e6. Far smaller ones diverge."}),
    Row<&JobSpec::outer_reduction>({
        .name = "outer_reduction", .group = kModeGroup, .wire = "outer_reduction",
        .absent = Absent::kIsDefault,
        .counts = [](const JobSpec& job) { return job.mode == Mode::kLocalSgd; },
        .counts_with = "--mode=local_sgd", .site = Site::kOwnWithLocalSteps,
        .help = "local_sgd: what the servers make of a round's contributions. mean: their mean, "
                "which is the shorter the more their directions differ. direction: tensor by "
                "tensor the mean of their directions, as long as they are in the mean (Decoupled "
                "DiLoCo, 2604.21428), so that steps are as long whoever joins or leaves; of "
                "embeddings the mean. Not with --outer_optimizer=average; servers hold one more "
                "copy of the parameters while a round is open."}),
    Row<&JobSpec::momentum_correction>({
        .name = "momentum_correction", .group = kModeGroup, .wire = "momentum_correction",
        .absent = Absent::kIsDefault, .counts = IsAsyncLocalSgd,
        .counts_with = "--mode=async_local_sgd",
        .help = "async_local_sgd with nesterov: what becomes of a contribution that goes against "
                "the outer momentum, as late ones and those of other data do. heloco "
                "(2606.00271): tensor by tensor, what of it lies against the momentum shrinks, "
                "and what hardly goes with it is turned towards it; with an --outer_momentum of "
                "0.5 to 0.7. none: it is applied as it is."}),
    Row<&JobSpec::anchor>({
        .name = "anchor", .group = kModeGroup, .wire = "anchor", .absent = Absent::kIsDefault,
        .counts = IsAsyncLocalSgd, .counts_with = "--mode=async_local_sgd",
        .help = "async_local_sgd: from which weights the change is measured that a contribution "
                "is when it is applied. worker: from those that it was computed from, so that "
                "late work is added to what others have done meanwhile; server: from the "
                "servers' at that moment, so that it leads towards the worker's weights, and "
                "back from what others have done. The same where nothing came in between. server "
                "needs fp32 both ways."}),
    Row<&JobSpec::push_encoding>({
        .name = "push_encoding", .group = kWireGroup, .takes_auto = true, .site = Site::kOwn,
        .is_exchange = true, .is_planned = true,
        .help = "Encoding of what workers send: fp32, bf16, fp16, int8 or int4 (blocks of 256 or "
                "128 with a scale), topk (the largest of each 4096, see --topk), or auto. "
                "Servers sum in fp32."}),
    Row<&JobSpec::pull_encoding>({
        .name = "pull_encoding", .group = kWireGroup, .takes_auto = true, .is_exchange = true,
        .is_planned = true,
        .help = "fp32: workers get the weights. bf16, fp16, int8 or int4: they get the changes "
                "of the weights in that encoding, and servers hold one more copy of the "
                "parameters. Or auto."}),
    TopKRow<&params::Encoding::topk>({
        .name = "topk", .group = kWireGroup, .counts = SendsTopK,
        .counts_with = "--push_encoding=topk", .site = Site::kOwn, .is_exchange = true,
        .is_planned = true,
        .help = "--push_encoding=topk: how many elements of each 4096 travel, the largest; 1 to "
                "1024."}),
    TopKRow<&params::Encoding::topk_bits>({
        .name = "topk_bits", .group = kWireGroup, .counts = SendsTopK,
        .counts_with = "--push_encoding=topk", .site = Site::kOwn, .is_exchange = true,
        .is_planned = true,
        .help = "--push_encoding=topk: bits of each that travels, 2 or 4, beside 12 for its "
                "place."}),
    Row<&JobSpec::topk_divisor>({
        .name = "topk_divisor", .group = kWireGroup, .wire = "topk_divisor",
        .absent = Absent::kIsDefault,
        .counts = [](const JobSpec& job) { return SendsTopK(job) && HasRosters(job); },
        .counts_with = "--push_encoding=topk and --mode=sync or local_sgd", .site = Site::kOwn,
        .is_exchange = true, .is_planned = true,
        .help = "--push_encoding=topk: an element's sum is divided by all workers, or by its "
                "senders, those that sent it. Published systems differ: SparseLoCo takes "
                "workers, CCLoco senders, which makes steps up to as many times longer as there "
                "are workers."}),
    Row<&JobSpec::error_feedback>({
        .name = "error_feedback", .group = kWireGroup, .wire = "error_feedback",
        .counts = [](const JobSpec& job) {
          return job.push_encoding != params::Encoding::kFp32 ||
                 job.pull_encoding != params::Encoding::kFp32;
        },
        .counts_with = "--push_encoding or --pull_encoding other than fp32", .site = Site::kOwn,
        .is_planned = true,
        .help = "What an encoding loses is added to the next contribution or change, so that in "
                "sum nothing is lost. false is for comparison, and not with topk."}),
    Row<&JobSpec::feedback_decay>({
        .name = "feedback_decay", .group = kWireGroup, .flag_default = "0",
        .wire = "feedback_decay", .absent = Absent::kIsDefault,
        .counts = [](const JobSpec& job) {
          return job.push_encoding != params::Encoding::kFp32 &&
                 job.error_feedback;
        },
        .counts_with = "--push_encoding other than fp32 and --error_feedback", .site = Site::kOwn,
        .is_exchange = true,
        .help = "What is added to a worker's next contribution is multiplied by it: above 0, at "
                "most 1. 0: 0.95 with --push_encoding=topk (as SparseLoCo does), else 1."}),
    Row<&JobSpec::min_workers>({
        .name = "min_workers", .group = kModeGroup, .range = Whole(1, kMaxWorkers),
        .wire = "min_workers", .site = Site::kOwn, .is_of_coordinator = true,
        .help = "Workers that must have joined before the job starts; at least 1. Also when a "
                "server is started again."}),
    Row<&JobSpec::keep_workers>({
        .name = "keep_workers", .group = kModeGroup, .wire = "keep_workers",
        .absent = Absent::kIsDefault, .site = Site::kOwn, .is_of_coordinator = true,
        .help = "Workers that must be left for a job that has started to go on; 1 to "
                "--min_workers. If more are lost, it waits for some to come back."}),
    Row<&JobSpec::eval_every>({
        .name = "eval_every", .group = kLengthGroup, .range = Whole(0, kMaxRounds),
        .wire = "eval_every", .is_of_coordinator = true,
        .help = "Rounds between evaluations on held-out samples; 0: at the end only."}),
    Row<&JobSpec::eval_samples>({
        .name = "eval_samples", .group = kLengthGroup, .flag_default = "10000",
        .range = Whole(0, kMaxRounds), .wire = "eval_samples", .is_of_coordinator = true,
        .help = "Most held-out samples per evaluation, spread evenly over all there are; 0 takes "
                "all."}),
    Row<&JobSpec::bucket_bytes>({
        .name = "bucket_bytes", .group = kModelGroup,
        .range = Whole(sizeof(float), kMaxBucketBytes), .wire = "bucket_bytes", .site = Site::kOwn,
        .is_planned = true,
        .help = "Size limit of a bucket, the unit of aggregation and transfer, in bytes of fp32; "
                "4 to 1 GiB."}),
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

// Reads a value. Errors: InvalidArgument that says which form is wanted.
absl::StatusOr<JobValue> ParseValue(Type type, absl::string_view text) {
  bool flag = false;
  int32_t small = 0;
  int64_t whole = 0;
  uint64_t natural = 0;
  double real = 0.0;
  switch (type) {
    case Type::kBool:
      if (absl::SimpleAtob(text, &flag)) return flag;
      return absl::InvalidArgumentError("true or false");
    case Type::kInt32:
      if (absl::SimpleAtoi(text, &small)) return int64_t{small};
      return absl::InvalidArgumentError("a whole number that it takes");
    case Type::kInt64:
      if (absl::SimpleAtoi(text, &whole)) return whole;
      return absl::InvalidArgumentError("a whole number that it takes");
    case Type::kUint64:
      if (absl::SimpleAtoi(text, &natural)) return natural;
      return absl::InvalidArgumentError("a whole number that it takes");
    case Type::kDouble:
      if (absl::SimpleAtod(text, &real)) return real;
      return absl::InvalidArgumentError("a number");
    case Type::kText:
      return std::string(text);
  }
  return absl::InternalError("a type that is known");
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
  const absl::StatusOr<JobValue> value = ParseValue(field.type, text);
  if (value.ok()) return field.set(field, *value, job);
  return absl::InvalidArgumentError(
      absl::StrCat("--", field.name, "=", text, " is not ", value.status().message()));
}

absl::Status CheckFieldRanges(const JobSpec& job) {
  for (const JobField& field : kFields) RETURN_IF_ERROR(CheckFieldRange(field, job));
  return absl::OkStatus();
}

}  // namespace lodestar::job
