// SPDX-License-Identifier: Apache-2.0

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"
#include "proto/convert.h"
#include "proto/job_field_convert.h"

namespace lodestar::wire {
namespace {

// A row of a table: a value of an enum in its native form and its form in messages. Each enum has
// one table for both directions.
template <typename Native, typename Wire>
struct EnumRow {
  Native native;
  Wire wire;
};

constexpr EnumRow<job::OptimizerKind, v1::OptimizerKind> kOptimizers[] = {
    {job::OptimizerKind::kSgd, v1::OPTIMIZER_KIND_SGD},
    {job::OptimizerKind::kMomentum, v1::OPTIMIZER_KIND_MOMENTUM},
    {job::OptimizerKind::kNesterov, v1::OPTIMIZER_KIND_NESTEROV},
    {job::OptimizerKind::kAdamW, v1::OPTIMIZER_KIND_ADAMW},
    {job::OptimizerKind::kReduce, v1::OPTIMIZER_KIND_REDUCE},
};
constexpr EnumRow<params::Encoding::Kind, v1::Encoding> kEncodings[] = {
    {params::Encoding::Kind::kFp32, v1::ENCODING_FP32},
    {params::Encoding::Kind::kBf16, v1::ENCODING_BF16},
    {params::Encoding::Kind::kFp16, v1::ENCODING_FP16},
    {params::Encoding::Kind::kInt8, v1::ENCODING_INT8},
    {params::Encoding::Kind::kInt4, v1::ENCODING_INT4},
    {params::Encoding::Kind::kTopK2, v1::ENCODING_TOPK2},
    {params::Encoding::Kind::kTopK4, v1::ENCODING_TOPK4},
};
constexpr EnumRow<job::RobustMean::Kind, v1::RobustMean> kRobustMeans[] = {
    {job::RobustMean::Kind::kNone, v1::ROBUST_MEAN_NONE},
    {job::RobustMean::Kind::kMedian, v1::ROBUST_MEAN_MEDIAN},
    {job::RobustMean::Kind::kTrimmed, v1::ROBUST_MEAN_TRIMMED},
};
constexpr EnumRow<messages::ContributionKind, v1::ContributionKind> kContributions[] = {
    {messages::ContributionKind::kGradient, v1::CONTRIBUTION_KIND_GRADIENT},
    {messages::ContributionKind::kPseudoGradient, v1::CONTRIBUTION_KIND_PSEUDO_GRADIENT},
    {messages::ContributionKind::kInitialWeights, v1::CONTRIBUTION_KIND_INITIAL_WEIGHTS},
    {messages::ContributionKind::kWeights, v1::CONTRIBUTION_KIND_WEIGHTS},
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

// Returns the encoding of a job. Jobs of a version without encodings lack the field, which means
// fp32.
absl::StatusOr<params::Encoding> JobEncoding(v1::Encoding wire, int topk, absl::string_view field) {
  if (wire == v1::ENCODING_UNSPECIFIED) return params::Encoding::kFp32;
  ASSIGN_OR_RETURN(const params::Encoding::Kind kind, EnumFromProto(kEncodings, wire, field));
  for (const params::Encoding encoding : params::kAllEncodings) {
    if (encoding.kind() != kind) continue;
    return encoding.is_topk() ? params::MakeTopK(topk, encoding.topk_bits()) : encoding;
  }
  return absl::InternalError(absl::StrCat(field, " is not among the encodings"));
}

}  // namespace

v1::Encoding ToProto(params::Encoding::Kind encoding) { return EnumToProto(kEncodings, encoding); }
absl::StatusOr<params::Encoding::Kind> FromProto(v1::Encoding encoding) {
  return EnumFromProto(kEncodings, encoding, "encoding");
}

v1::ContributionKind ToProto(messages::ContributionKind kind) {
  return EnumToProto(kContributions, kind);
}
absl::StatusOr<messages::ContributionKind> FromProto(v1::ContributionKind kind) {
  return EnumFromProto(kContributions, kind, "contribution kind");
}

v1::JobLoss ToProto(const job::JobLoss& loss) {
  v1::JobLoss proto;
  if (loss.train.has_value()) proto.set_train(*loss.train);
  proto.set_train_round(loss.train_round.value());
  if (loss.heldout.has_value()) proto.set_heldout(*loss.heldout);
  if (loss.heldout_accuracy.has_value()) proto.set_heldout_accuracy(*loss.heldout_accuracy);
  proto.set_heldout_round(loss.heldout_round.value());
  return proto;
}

job::JobLoss FromProto(const v1::JobLoss& proto) {
  job::JobLoss loss;
  if (proto.has_train()) loss.train = proto.train();
  loss.train_round = Round(proto.train_round());
  if (proto.has_heldout()) loss.heldout = proto.heldout();
  if (proto.has_heldout_accuracy()) loss.heldout_accuracy = proto.heldout_accuracy();
  loss.heldout_round = Round(proto.heldout_round());
  return loss;
}

v1::ProposedSettings ToProto(const job::ProposedSettings& proposed) {
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
  proto.set_has_program_rates(proposed.has_program_rates);
  return proto;
}

absl::StatusOr<job::ProposedSettings> FromProto(const v1::ProposedSettings& proto) {
  job::ProposedSettings proposed;
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
  proposed.has_program_rates = proto.has_program_rates();
  return proposed;
}

v1::JobSpec ToProto(const job::JobSpec& job) {
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

absl::StatusOr<job::JobSpec> FromProto(const v1::JobSpec& proto) {
  job::JobSpec job;
  ASSIGN_OR_RETURN(job.model, FromProto(proto.model()));
  RETURN_IF_ERROR(FieldsFromProto(proto, job));
  ASSIGN_OR_RETURN(job.push_encoding,
                   JobEncoding(proto.push_encoding(), proto.topk(), "push_encoding"));
  // The number of top-k elements does not matter here, because ValidateJobSpec() refuses top-k for
  // pulls.
  ASSIGN_OR_RETURN(job.pull_encoding,
                   JobEncoding(proto.pull_encoding(), params::kDefaultTopK, "pull_encoding"));
  if (proto.robust_mean() != v1::ROBUST_MEAN_UNSPECIFIED) {
    ASSIGN_OR_RETURN(job.robust_mean.kind,
                     EnumFromProto(kRobustMeans, proto.robust_mean(), "robust_mean"));
  }
  job.robust_mean.trim = proto.trim();
  RETURN_IF_ERROR(job::ValidateJobSpec(job));
  return job;
}

}  // namespace lodestar::wire
