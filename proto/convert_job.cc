#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"
#include "proto/convert.h"
#include "proto/job_field_convert.h"

namespace lodestar::wire {
namespace {

// A value of an enum, native and in messages. Each enum has one table of such rows for both
// directions.
template <typename Native, typename Wire>
struct EnumRow {
  Native native;
  Wire wire;
};

constexpr EnumRow<OptimizerKind, v1::OptimizerKind> kOptimizers[] = {
    {OptimizerKind::kSgd, v1::OPTIMIZER_KIND_SGD},
    {OptimizerKind::kMomentum, v1::OPTIMIZER_KIND_MOMENTUM},
    {OptimizerKind::kNesterov, v1::OPTIMIZER_KIND_NESTEROV},
    {OptimizerKind::kAdamW, v1::OPTIMIZER_KIND_ADAMW},
    {OptimizerKind::kReduce, v1::OPTIMIZER_KIND_REDUCE},
};
constexpr EnumRow<Encoding::Kind, v1::Encoding> kEncodings[] = {
    {Encoding::Kind::kFp32, v1::ENCODING_FP32},   {Encoding::Kind::kBf16, v1::ENCODING_BF16},
    {Encoding::Kind::kFp16, v1::ENCODING_FP16},   {Encoding::Kind::kInt8, v1::ENCODING_INT8},
    {Encoding::Kind::kInt4, v1::ENCODING_INT4},   {Encoding::Kind::kTopK2, v1::ENCODING_TOPK2},
    {Encoding::Kind::kTopK4, v1::ENCODING_TOPK4},
};
constexpr EnumRow<RobustMean::Kind, v1::RobustMean> kRobustMeans[] = {
    {RobustMean::Kind::kNone, v1::ROBUST_MEAN_NONE},
    {RobustMean::Kind::kMedian, v1::ROBUST_MEAN_MEDIAN},
    {RobustMean::Kind::kTrimmed, v1::ROBUST_MEAN_TRIMMED},
};
constexpr EnumRow<ContributionKind, v1::ContributionKind> kContributions[] = {
    {ContributionKind::kGradient, v1::CONTRIBUTION_KIND_GRADIENT},
    {ContributionKind::kPseudoGradient, v1::CONTRIBUTION_KIND_PSEUDO_GRADIENT},
    {ContributionKind::kInitialWeights, v1::CONTRIBUTION_KIND_INITIAL_WEIGHTS},
    {ContributionKind::kWeights, v1::CONTRIBUTION_KIND_WEIGHTS},
};

// Returns the enum value in messages, or 0 (UNSPECIFIED) if `native` is not a value of its type.
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

// Returns the encoding of a job. A job of a version without encodings has fp32.
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

v1::JobSpec ToProto(const JobSpec& job) {
  v1::JobSpec proto;
  *proto.mutable_model() = ToProto(job.model);
  FieldsToProto(job, proto);
  proto.set_push_encoding(ToProto(job.push_encoding.kind()));
  proto.set_pull_encoding(ToProto(job.pull_encoding.kind()));
  proto.set_topk(job.push_encoding.topk());
  proto.set_robust_mean(EnumToProto(kRobustMeans, job.robust_mean.kind));
  proto.set_trim(job.robust_mean.trim);
  return proto;
}

absl::StatusOr<JobSpec> FromProto(const v1::JobSpec& proto) {
  JobSpec job;
  ASSIGN_OR_RETURN(job.model, FromProto(proto.model()));
  RETURN_IF_ERROR(FieldsFromProto(proto, job));
  ASSIGN_OR_RETURN(job.push_encoding,
                   JobEncoding(proto.push_encoding(), proto.topk(), "push_encoding"));
  // ValidateJobSpec() refuses top-k for pulls.
  ASSIGN_OR_RETURN(job.pull_encoding,
                   JobEncoding(proto.pull_encoding(), kDefaultTopK, "pull_encoding"));
  if (proto.robust_mean() != v1::ROBUST_MEAN_UNSPECIFIED) {
    ASSIGN_OR_RETURN(job.robust_mean.kind,
                     EnumFromProto(kRobustMeans, proto.robust_mean(), "robust_mean"));
  }
  job.robust_mean.trim = proto.trim();
  RETURN_IF_ERROR(ValidateJobSpec(job));
  return job;
}

}  // namespace lodestar::wire
