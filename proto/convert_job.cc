#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/convert.h"

namespace lodestar {
namespace {

// One row per value of an enum: the tables are all there is to keep equal on both sides.
template <typename Native, typename Wire>
struct EnumRow {
  Native native;
  Wire wire;
};

constexpr EnumRow<Mode, v1::Mode> kModes[] = {
    {Mode::kSync, v1::MODE_SYNC},
    {Mode::kAsync, v1::MODE_ASYNC},
    {Mode::kLocalSgd, v1::MODE_LOCAL_SGD},
    {Mode::kAsyncLocalSgd, v1::MODE_ASYNC_LOCAL_SGD},
};
constexpr EnumRow<OptimizerKind, v1::OptimizerKind> kOptimizers[] = {
    {OptimizerKind::kSgd, v1::OPTIMIZER_KIND_SGD},
    {OptimizerKind::kMomentum, v1::OPTIMIZER_KIND_MOMENTUM},
    {OptimizerKind::kNesterov, v1::OPTIMIZER_KIND_NESTEROV},
    {OptimizerKind::kAdamW, v1::OPTIMIZER_KIND_ADAMW},
    {OptimizerKind::kReduce, v1::OPTIMIZER_KIND_REDUCE},
};
constexpr EnumRow<OuterOptimizerKind, v1::OuterOptimizerKind> kOuterOptimizers[] = {
    {OuterOptimizerKind::kAverage, v1::OUTER_OPTIMIZER_KIND_AVERAGE},
    {OuterOptimizerKind::kNesterov, v1::OUTER_OPTIMIZER_KIND_NESTEROV},
    {OuterOptimizerKind::kSgd, v1::OUTER_OPTIMIZER_KIND_SGD},
    {OuterOptimizerKind::kAdam, v1::OUTER_OPTIMIZER_KIND_ADAM},
    {OuterOptimizerKind::kEasgd, v1::OUTER_OPTIMIZER_KIND_EASGD},
};
constexpr EnumRow<OuterReduction, v1::OuterReduction> kReductions[] = {
    {OuterReduction::kMean, v1::OUTER_REDUCTION_MEAN},
    {OuterReduction::kDirection, v1::OUTER_REDUCTION_DIRECTION},
};
constexpr EnumRow<MomentumCorrectionKind, v1::MomentumCorrection> kCorrections[] = {
    {MomentumCorrectionKind::kNone, v1::MOMENTUM_CORRECTION_NONE},
    {MomentumCorrectionKind::kHeloco, v1::MOMENTUM_CORRECTION_HELOCO},
};
constexpr EnumRow<Anchor, v1::Anchor> kAnchors[] = {
    {Anchor::kWorker, v1::ANCHOR_WORKER},
    {Anchor::kServer, v1::ANCHOR_SERVER},
};
constexpr EnumRow<StalenessScaling, v1::StalenessScaling> kScalings[] = {
    {StalenessScaling::kNone, v1::STALENESS_SCALING_NONE},
    {StalenessScaling::kInverse, v1::STALENESS_SCALING_INVERSE},
};
constexpr EnumRow<ScheduleKind, v1::ScheduleKind> kSchedules[] = {
    {ScheduleKind::kConstant, v1::SCHEDULE_KIND_CONSTANT},
    {ScheduleKind::kCosine, v1::SCHEDULE_KIND_COSINE},
    {ScheduleKind::kLinear, v1::SCHEDULE_KIND_LINEAR},
};
constexpr EnumRow<Encoding::Kind, v1::Encoding> kEncodings[] = {
    {Encoding::Kind::kFp32, v1::ENCODING_FP32},   {Encoding::Kind::kBf16, v1::ENCODING_BF16},
    {Encoding::Kind::kFp16, v1::ENCODING_FP16},   {Encoding::Kind::kInt8, v1::ENCODING_INT8},
    {Encoding::Kind::kInt4, v1::ENCODING_INT4},   {Encoding::Kind::kTopK2, v1::ENCODING_TOPK2},
    {Encoding::Kind::kTopK4, v1::ENCODING_TOPK4},
};
constexpr EnumRow<TopKDivisor, v1::TopKDivisor> kTopKDivisors[] = {
    {TopKDivisor::kWorkers, v1::TOPK_DIVISOR_WORKERS},
    {TopKDivisor::kSenders, v1::TOPK_DIVISOR_SENDERS},
};
constexpr EnumRow<RobustMean::Kind, v1::RobustMean> kRobustMeans[] = {
    {RobustMean::Kind::kNone, v1::ROBUST_MEAN_NONE},
    {RobustMean::Kind::kMedian, v1::ROBUST_MEAN_MEDIAN},
    {RobustMean::Kind::kTrimmed, v1::ROBUST_MEAN_TRIMMED},
};
constexpr EnumRow<Balance, v1::Balance> kBalances[] = {
    {Balance::kEqual, v1::BALANCE_EQUAL},
    {Balance::kSpeed, v1::BALANCE_SPEED},
};
constexpr EnumRow<MergeKind, v1::MergeKind> kMerges[] = {
    {MergeKind::kMix, v1::MERGE_KIND_MIX},
    {MergeKind::kKeep, v1::MERGE_KIND_KEEP},
};
constexpr EnumRow<ContributionKind, v1::ContributionKind> kContributions[] = {
    {ContributionKind::kGradient, v1::CONTRIBUTION_KIND_GRADIENT},
    {ContributionKind::kPseudoGradient, v1::CONTRIBUTION_KIND_PSEUDO_GRADIENT},
    {ContributionKind::kInitialWeights, v1::CONTRIBUTION_KIND_INITIAL_WEIGHTS},
    {ContributionKind::kWeights, v1::CONTRIBUTION_KIND_WEIGHTS},
};

// 0, which every wire enum calls UNSPECIFIED, if `native` is not a value of its type.
template <typename Native, typename Wire, size_t kRows>
Wire EnumToProto(const EnumRow<Native, Wire> (&rows)[kRows], Native native) {
  for (const auto& row : rows) {
    if (row.native == native) return row.wire;
  }
  return static_cast<Wire>(0);
}

template <typename Native, typename Wire, size_t kRows>
absl::StatusOr<Native> EnumFromProto(const EnumRow<Native, Wire> (&rows)[kRows], Wire wire,
                                     absl::string_view field) {
  for (const auto& row : rows) {
    if (row.wire == wire) return row.native;
  }
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", static_cast<int>(wire),
                                                 wire == 0 ? " (unspecified); set it"
                                                           : ", which this version does not know; "
                                                             "use the same version on both sides"));
}

// Of a job: those of versions that know nothing of encodings are fp32.
absl::StatusOr<Encoding> JobEncoding(v1::Encoding wire, int topk, absl::string_view field) {
  if (wire == v1::ENCODING_UNSPECIFIED) return Encoding::kFp32;
  ASSIGN_OR_RETURN(const Encoding::Kind kind, EnumFromProto(kEncodings, wire, field));
  for (const Encoding encoding : kAllEncodings) {
    if (encoding.kind() != kind) continue;
    return encoding.is_topk() ? MakeTopK(topk, encoding.topk_bits()) : encoding;
  }
  return absl::InternalError(absl::StrCat(field, " is not among the encodings"));
}

}  // namespace

v1::Encoding ToProto(Encoding::Kind encoding) { return EnumToProto(kEncodings, encoding); }
absl::StatusOr<Encoding::Kind> FromProto(v1::Encoding encoding) {
  return EnumFromProto(kEncodings, encoding, "encoding");
}

v1::ContributionKind ToProto(ContributionKind kind) { return EnumToProto(kContributions, kind); }
absl::StatusOr<ContributionKind> FromProto(v1::ContributionKind kind) {
  return EnumFromProto(kContributions, kind, "contribution kind");
}

v1::JobLoss ToProto(const JobLoss& loss) {
  v1::JobLoss proto;
  if (loss.train.has_value()) proto.set_train(*loss.train);
  proto.set_train_round(loss.train_round.value());
  if (loss.heldout.has_value()) proto.set_heldout(*loss.heldout);
  if (loss.heldout_accuracy.has_value()) proto.set_heldout_accuracy(*loss.heldout_accuracy);
  proto.set_heldout_round(loss.heldout_round.value());
  return proto;
}

JobLoss FromProto(const v1::JobLoss& proto) {
  JobLoss loss;
  if (proto.has_train()) loss.train = proto.train();
  loss.train_round = Round(proto.train_round());
  if (proto.has_heldout()) loss.heldout = proto.heldout();
  if (proto.has_heldout_accuracy()) loss.heldout_accuracy = proto.heldout_accuracy();
  loss.heldout_round = Round(proto.heldout_round());
  return loss;
}

v1::OptimizerSettings ToProto(const OptimizerSettings& settings) {
  v1::OptimizerSettings proto;
  proto.set_kind(EnumToProto(kOptimizers, settings.kind));
  proto.set_momentum(settings.momentum);
  proto.set_beta1(settings.beta1);
  proto.set_beta2(settings.beta2);
  proto.set_epsilon(settings.epsilon);
  proto.set_weight_decay(settings.weight_decay);
  return proto;
}

absl::StatusOr<OptimizerSettings> FromProto(const v1::OptimizerSettings& proto) {
  OptimizerSettings settings;
  ASSIGN_OR_RETURN(settings.kind, EnumFromProto(kOptimizers, proto.kind(), "optimizer.kind"));
  settings.momentum = proto.momentum();
  settings.beta1 = proto.beta1();
  settings.beta2 = proto.beta2();
  settings.epsilon = proto.epsilon();
  settings.weight_decay = proto.weight_decay();
  return settings;
}

v1::ProposedSettings ToProto(const ProposedSettings& proposed) {
  v1::ProposedSettings proto;
  if (proposed.optimizer) proto.set_optimizer(EnumToProto(kOptimizers, *proposed.optimizer));
  if (proposed.momentum) proto.set_momentum(*proposed.momentum);
  if (proposed.beta1) proto.set_beta1(*proposed.beta1);
  if (proposed.beta2) proto.set_beta2(*proposed.beta2);
  if (proposed.epsilon) proto.set_epsilon(*proposed.epsilon);
  if (proposed.weight_decay) proto.set_weight_decay(*proposed.weight_decay);
  if (proposed.learning_rate) proto.set_learning_rate(*proposed.learning_rate);
  if (proposed.clip_norm) proto.set_clip_norm(*proposed.clip_norm);
  if (proposed.batch_size) proto.set_batch_size(*proposed.batch_size);
  return proto;
}

absl::StatusOr<ProposedSettings> FromProto(const v1::ProposedSettings& proto) {
  ProposedSettings proposed;
  if (proto.has_optimizer()) {
    ASSIGN_OR_RETURN(proposed.optimizer,
                     EnumFromProto(kOptimizers, proto.optimizer(), "proposed.optimizer"));
  }
  if (proto.has_momentum()) proposed.momentum = proto.momentum();
  if (proto.has_beta1()) proposed.beta1 = proto.beta1();
  if (proto.has_beta2()) proposed.beta2 = proto.beta2();
  if (proto.has_epsilon()) proposed.epsilon = proto.epsilon();
  if (proto.has_weight_decay()) proposed.weight_decay = proto.weight_decay();
  if (proto.has_learning_rate()) proposed.learning_rate = proto.learning_rate();
  if (proto.has_clip_norm()) proposed.clip_norm = proto.clip_norm();
  if (proto.has_batch_size()) proposed.batch_size = proto.batch_size();
  return proposed;
}

v1::LearningRateSchedule ToProto(const LearningRateSchedule& schedule) {
  v1::LearningRateSchedule proto;
  proto.set_kind(EnumToProto(kSchedules, schedule.kind));
  proto.set_peak(schedule.peak);
  proto.set_minimum(schedule.minimum);
  proto.set_warmup_rounds(schedule.warmup_rounds);
  proto.set_total_rounds(schedule.total_rounds);
  return proto;
}

absl::StatusOr<LearningRateSchedule> FromProto(const v1::LearningRateSchedule& proto) {
  LearningRateSchedule schedule;
  ASSIGN_OR_RETURN(schedule.kind, EnumFromProto(kSchedules, proto.kind(), "schedule.kind"));
  schedule.peak = proto.peak();
  schedule.minimum = proto.minimum();
  schedule.warmup_rounds = proto.warmup_rounds();
  schedule.total_rounds = proto.total_rounds();
  return schedule;
}

v1::JobSpec ToProto(const JobSpec& job) {
  v1::JobSpec proto;
  *proto.mutable_model() = ToProto(job.model);
  proto.set_mode(EnumToProto(kModes, job.mode));
  proto.set_quorum(job.quorum);
  proto.set_max_rounds_ahead(job.max_rounds_ahead);
  if (job.max_staleness >= 0) proto.set_max_staleness(job.max_staleness);
  proto.set_balance(EnumToProto(kBalances, job.balance));
  proto.set_staleness_scaling(EnumToProto(kScalings, job.staleness_scaling));
  proto.set_local_steps(job.local_steps);
  proto.set_outer_optimizer(EnumToProto(kOuterOptimizers, job.outer_optimizer));
  proto.set_outer_learning_rate(job.outer_learning_rate);
  proto.set_outer_momentum(job.outer_momentum);
  proto.set_outer_beta2(job.outer_beta2);
  proto.set_outer_epsilon(job.outer_epsilon);
  proto.set_outer_reduction(EnumToProto(kReductions, job.outer_reduction));
  proto.set_momentum_correction(EnumToProto(kCorrections, job.momentum_correction));
  proto.set_anchor(EnumToProto(kAnchors, job.anchor));
  *proto.mutable_optimizer() = ToProto(job.optimizer);
  *proto.mutable_schedule() = ToProto(job.schedule);
  proto.set_clip_norm(job.clip_norm);
  proto.set_batch_size(job.batch_size);
  proto.set_global_batch_size(job.global_batch_size);
  proto.set_min_workers(job.min_workers);
  proto.set_keep_workers(job.keep_workers);
  proto.set_seed(job.seed);
  proto.set_eval_every(job.eval_every);
  proto.set_eval_samples(job.eval_samples);
  proto.set_bucket_bytes(job.bucket_bytes);
  proto.set_push_encoding(ToProto(job.push_encoding.kind()));
  proto.set_pull_encoding(ToProto(job.pull_encoding.kind()));
  proto.set_topk(job.push_encoding.topk());
  proto.set_topk_divisor(EnumToProto(kTopKDivisors, job.topk_divisor));
  proto.set_feedback_decay(job.feedback_decay);
  proto.set_error_feedback(job.error_feedback);
  proto.set_robust_mean(EnumToProto(kRobustMeans, job.robust_mean.kind));
  proto.set_trim(job.robust_mean.trim);
  proto.set_norm_limit(job.norm_limit);
  proto.set_fragments(job.fragments);
  proto.set_overlap_steps(job.overlap_steps);
  proto.set_overlap_rounds(job.overlap_rounds);
  proto.set_merge(EnumToProto(kMerges, job.merge));
  proto.set_merge_alpha(job.merge_alpha);
  return proto;
}

absl::StatusOr<JobSpec> FromProto(const v1::JobSpec& proto) {
  JobSpec job;
  ASSIGN_OR_RETURN(job.model, FromProto(proto.model()));
  ASSIGN_OR_RETURN(job.mode, EnumFromProto(kModes, proto.mode(), "mode"));
  job.quorum = proto.quorum();
  job.max_rounds_ahead = proto.max_rounds_ahead();
  if (proto.has_max_staleness()) job.max_staleness = proto.max_staleness();
  if (proto.balance() != v1::BALANCE_UNSPECIFIED) {
    ASSIGN_OR_RETURN(job.balance, EnumFromProto(kBalances, proto.balance(), "balance"));
  }
  ASSIGN_OR_RETURN(job.staleness_scaling,
                   EnumFromProto(kScalings, proto.staleness_scaling(), "staleness_scaling"));
  job.local_steps = proto.local_steps();
  ASSIGN_OR_RETURN(job.outer_optimizer,
                   EnumFromProto(kOuterOptimizers, proto.outer_optimizer(), "outer_optimizer"));
  job.outer_learning_rate = proto.outer_learning_rate();
  job.outer_momentum = proto.outer_momentum();
  // Earlier releases have neither.
  if (proto.outer_epsilon() != 0) {
    job.outer_beta2 = proto.outer_beta2();
    job.outer_epsilon = proto.outer_epsilon();
  }
  if (proto.outer_reduction() != v1::OUTER_REDUCTION_UNSPECIFIED) {
    ASSIGN_OR_RETURN(job.outer_reduction,
                     EnumFromProto(kReductions, proto.outer_reduction(), "outer_reduction"));
  }
  if (proto.momentum_correction() != v1::MOMENTUM_CORRECTION_UNSPECIFIED) {
    ASSIGN_OR_RETURN(
        job.momentum_correction,
        EnumFromProto(kCorrections, proto.momentum_correction(), "momentum_correction"));
  }
  if (proto.anchor() != v1::ANCHOR_UNSPECIFIED) {
    ASSIGN_OR_RETURN(job.anchor, EnumFromProto(kAnchors, proto.anchor(), "anchor"));
  }
  ASSIGN_OR_RETURN(job.optimizer, FromProto(proto.optimizer()));
  ASSIGN_OR_RETURN(job.schedule, FromProto(proto.schedule()));
  job.clip_norm = proto.clip_norm();
  job.batch_size = proto.batch_size();
  job.global_batch_size = proto.global_batch_size();
  job.min_workers = proto.min_workers();
  if (proto.keep_workers() != 0) job.keep_workers = proto.keep_workers();
  job.seed = proto.seed();
  job.eval_every = proto.eval_every();
  job.eval_samples = proto.eval_samples();
  job.bucket_bytes = proto.bucket_bytes();
  ASSIGN_OR_RETURN(job.push_encoding,
                   JobEncoding(proto.push_encoding(), proto.topk(), "push_encoding"));
  // ValidateJobSpec() refuses top-k.
  ASSIGN_OR_RETURN(job.pull_encoding,
                   JobEncoding(proto.pull_encoding(), kDefaultTopK, "pull_encoding"));
  if (proto.topk_divisor() != v1::TOPK_DIVISOR_UNSPECIFIED) {
    ASSIGN_OR_RETURN(job.topk_divisor,
                     EnumFromProto(kTopKDivisors, proto.topk_divisor(), "topk_divisor"));
  }
  if (proto.feedback_decay() != 0) job.feedback_decay = proto.feedback_decay();
  job.error_feedback = proto.error_feedback();
  if (proto.robust_mean() != v1::ROBUST_MEAN_UNSPECIFIED) {
    ASSIGN_OR_RETURN(job.robust_mean.kind,
                     EnumFromProto(kRobustMeans, proto.robust_mean(), "robust_mean"));
  }
  job.robust_mean.trim = proto.trim();
  job.norm_limit = proto.norm_limit();
  if (proto.fragments() != 0) job.fragments = proto.fragments();
  job.overlap_steps = proto.overlap_steps();
  job.overlap_rounds = proto.overlap_rounds();
  if (proto.merge() != v1::MERGE_KIND_UNSPECIFIED) {
    ASSIGN_OR_RETURN(job.merge, EnumFromProto(kMerges, proto.merge(), "merge"));
    job.merge_alpha = proto.merge_alpha();
  }
  RETURN_IF_ERROR(ValidateJobSpec(job));
  return job;
}

}  // namespace lodestar
