// SPDX-License-Identifier: Apache-2.0

// All settings of one training job, as plain data: read from flags by the coordinator, sent to
// shards and workers at registration, stored in checkpoints. Wire form: JobSpec in proto/job.proto.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/learning_rate_schedule.h"
#include "common/job/robust_mean.h"
#include "common/params/bucket_plan.h"
#include "common/params/encoding.h"
#include "common/params/model_spec.h"
#include "common/runtime/kind_names.h"

namespace lodestar::job {

enum class Mode : uint8_t { kSync, kAsync, kLocalSgd, kAsyncLocalSgd };
// kReduce makes no step; see ReducesOnly().
enum class OptimizerKind : uint8_t { kSgd, kMomentum, kNesterov, kAdamW, kReduce };
// For kEasgd see IsElastic().
enum class OuterOptimizerKind : uint8_t { kAverage, kSgd, kNesterov, kAdam, kEasgd };
// How the outer optimizer combines the workers' contributions of a round. kMean: their mean.
// kDirection: a vector with their mean direction and their mean length; see AveragesDirections().
enum class OuterReduction : uint8_t { kMean, kDirection };
// How a contribution of local steps is changed if it points against the outer momentum. For kHeloco
// see MomentumCorrection in server/optimizer/momentum_correction.h.
enum class MomentumCorrectionKind : uint8_t { kNone, kHeloco };
// For async_local_sgd: the weights that are subtracted from a worker's new weights to get the
// change. kWorker: the weights from which the worker started. kServer: the servers' weights when
// the contribution is applied. Both are the same if the servers made no update in between.
enum class Anchor : uint8_t { kWorker, kServer };
enum class StalenessScaling : uint8_t { kNone, kInverse };
// How a worker combines its own weights with the new weights of an exchange, which arrive
// --overlap_steps steps after its contribution. kMix: a weighted mean of both. kKeep: the new
// weights, plus the steps that the worker made since its contribution.
enum class MergeKind : uint8_t { kMix, kKeep };
// How much of a round each worker computes. kEqual: all workers compute the same amount. kSpeed:
// each worker computes as much as it can in the same time. The amount is the worker's number of
// samples of a step or, in async_local_sgd, its number of local steps.
enum class Balance : uint8_t { kEqual, kSpeed };
// What the sum of top-k contributions is divided by, per element. kWorkers: by the weight of all
// contributions. kSenders: by the weight of only those contributions that sent the element.
enum class TopKDivisor : uint8_t { kWorkers, kSenders };

constexpr auto KindNames(Mode) {
  return TableOf<Mode>("mode", {{Mode::kSync, "sync"},
                                {Mode::kAsync, "async"},
                                {Mode::kLocalSgd, "local_sgd"},
                                {Mode::kAsyncLocalSgd, "async_local_sgd"}});
}
constexpr auto KindNames(OptimizerKind) {
  return TableOf<OptimizerKind>("optimizer", {{OptimizerKind::kSgd, "sgd"},
                                              {OptimizerKind::kMomentum, "momentum"},
                                              {OptimizerKind::kNesterov, "nesterov"},
                                              {OptimizerKind::kAdamW, "adamw"},
                                              {OptimizerKind::kReduce, "reduce"}});
}
constexpr auto KindNames(OuterOptimizerKind) {
  return TableOf<OuterOptimizerKind>("outer_optimizer",
                                     {{OuterOptimizerKind::kAverage, "average"},
                                      {OuterOptimizerKind::kSgd, "sgd"},
                                      {OuterOptimizerKind::kNesterov, "nesterov"},
                                      {OuterOptimizerKind::kAdam, "adam"},
                                      {OuterOptimizerKind::kEasgd, "easgd"}});
}
constexpr auto KindNames(OuterReduction) {
  return TableOf<OuterReduction>("outer_reduction", {{OuterReduction::kMean, "mean"},
                                                     {OuterReduction::kDirection, "direction"}});
}
constexpr auto KindNames(MomentumCorrectionKind) {
  return TableOf<MomentumCorrectionKind>(
      "momentum_correction",
      {{MomentumCorrectionKind::kNone, "none"}, {MomentumCorrectionKind::kHeloco, "heloco"}});
}
constexpr auto KindNames(Anchor) {
  return TableOf<Anchor>("anchor", {{Anchor::kWorker, "worker"}, {Anchor::kServer, "server"}});
}
constexpr auto KindNames(MergeKind) {
  return TableOf<MergeKind>("merge", {{MergeKind::kMix, "mix"}, {MergeKind::kKeep, "keep"}});
}
constexpr auto KindNames(StalenessScaling) {
  return TableOf<StalenessScaling>("staleness_scaling", {{StalenessScaling::kNone, "none"},
                                                         {StalenessScaling::kInverse, "inverse"}});
}
constexpr auto KindNames(Balance) {
  return TableOf<Balance>("balance", {{Balance::kEqual, "equal"}, {Balance::kSpeed, "speed"}});
}
constexpr auto KindNames(TopKDivisor) {
  return TableOf<TopKDivisor>(
      "topk_divisor", {{TopKDivisor::kWorkers, "workers"}, {TopKDivisor::kSenders, "senders"}});
}

// The optimizer of gradients. The servers use it in sync and async. Each worker uses it as its
// inner optimizer if HasLocalSteps().
struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.0;  // decoupled; only for tensors that the layout marks with `decay`
  friend bool operator==(const OptimizerSettings&, const OptimizerSettings&) = default;
};

// Maximum number of fragments. With more, fragments of most models would be smaller than a bucket.
inline constexpr int kMaxFragments = 64;

// Maximum number of samples of a step. A worker holds them in host memory.
inline constexpr int64_t kMaxStepSamples = int64_t{1} << 20;
// Maximum number of local steps. A grant, which is one message, has a learning rate for each step.
inline constexpr int kMaxLocalSteps = 1 << 19;

inline constexpr double kDefaultNormLimit = 10.0;
// Default of --outer_learning_rate for kEasgd, where it is beta: the best value in Zhang et al.
// 2015.
inline constexpr double kDefaultElasticRate = 0.9;
// Default outer momentum of modes in which each contribution of local steps makes its own outer
// step, or a part of one. Late contributions act like additional momentum (Mitliagkas et al. 2016,
// arXiv:1605.09774).
inline constexpr double kDefaultAsynchronousMomentum = 0.8;

struct JobSpec {
  params::ModelSpec model;
  Mode mode = Mode::kSync;
  // Number of contributions that end a round in sync, or make an outer step in async_local_sgd. 0
  // means the number of members.
  int quorum = 0;
  // For async and async_local_sgd: maximum number of rounds that a worker may be ahead of the
  // slowest. -1 means no limit. In async, 0 means lock step.
  int max_rounds_ahead = -1;
  // For async_local_sgd: maximum staleness of a contribution. Staleness is the number of updates of
  // a bucket since the weights that the contribution was computed on. A contribution above the
  // limit is ignored. -1 means no limit.
  int64_t max_staleness = -1;
  Balance balance = Balance::kEqual;
  StalenessScaling staleness_scaling = StalenessScaling::kNone;
  // If HasLocalSteps(): H, the steps between two exchanges of the same parameters.
  int local_steps = 1;
  // local_sgd: number of fragments that the parameters are cut into. Each round exchanges one of
  // them; see FragmentPlan.
  int fragments = 1;
  // local_sgd: number of steps that a worker makes after an exchange has begun and before it takes
  // the new weights.
  int overlap_steps = 0;
  MergeKind merge = MergeKind::kKeep;  // how weights that arrive during a window are merged
  double merge_alpha = 0.5;            // share of the worker's local weights in kMix
  // local_sgd: true means that an exchange may last until the end of the next window; see
  // EagerMerge.
  bool overlap_rounds = false;
  OuterOptimizerKind outer_optimizer = OuterOptimizerKind::kNesterov;
  double outer_learning_rate = 0.7;  // for kEasgd: beta
  double outer_momentum = 0.9;       // for kAdam: beta1
  double outer_beta2 = 0.95;
  double outer_epsilon = 0.1;
  OuterReduction outer_reduction = OuterReduction::kMean;  // for local_sgd
  // Used in async_local_sgd.
  MomentumCorrectionKind momentum_correction = MomentumCorrectionKind::kNone;
  Anchor anchor = Anchor::kWorker;  // for async_local_sgd
  OptimizerSettings optimizer;
  LearningRateSchedule schedule;  // total_rounds is the length of the job
  double clip_norm = 0.0;         // norm limit of gradients; 0 means no limit
  // Samples per worker and local step. 0 means that global_batch_size is used.
  int64_t batch_size = 0;
  int64_t global_batch_size = 0;  // samples per local step, split over the roster
  int min_workers = 1;            // number of members with which the job starts
  int keep_workers = 1;           // number of members that the job needs to go on
  uint64_t seed = 1;
  int64_t eval_every = 0;    // in rounds; 0 means only at the end
  int64_t eval_samples = 0;  // 0 means all held-out samples
  int64_t bucket_bytes = params::kDefaultBucketBytes;
  params::Encoding push_encoding = params::Encoding::kFp32;  // encoding of contributions
  // Encoding in which servers send weights. If it is not kFp32, they send changes of the weights.
  params::Encoding pull_encoding = params::Encoding::kFp32;
  // True means that the part that encoding loses is added to the next contribution or change.
  bool error_feedback = true;
  // Factor, above 0 and at most 1, by which the lost part of a contribution is multiplied before it
  // is added to the next contribution.
  double feedback_decay = 1.0;
  TopKDivisor topk_divisor = TopKDivisor::kWorkers;  // used if push_encoding is top-k
  RobustMean robust_mean;  // how a round's contributions are combined, if HasRosters()
  // Maximum norm of a contribution to a bucket, as a multiple of the usual norm. 0 means no limit.
  // See NormWatch.
  double norm_limit = kDefaultNormLimit;
};

// Returns true if all members contribute to each round: a roster is set, and the mean of its
// contributions is applied. Otherwise each contribution is a round of its own. Async with
// max_rounds_ahead=0 is lock step, and has rosters. Requires: `job` has passed ValidateJobSpec().
bool HasRosters(const JobSpec& job);

// Returns true if workers make steps between exchanges, with an inner optimizer of their own.
bool HasLocalSteps(const JobSpec& job);

// Returns true if workers keep their own weights from exchange to exchange (elastic averaging,
// Zhang et al. 2015, arXiv:1412.6651). In an exchange, a worker moves its weights towards the
// servers' weights, by beta * s of the distance:
//   beta is the outer learning rate
//   s is the worker's share of the samples of the round
// The servers' weights move by the sum of these moves, in the opposite direction.
bool IsElastic(const JobSpec& job);

// Returns true if workers send weights, and a contribution counts as the change from the servers'
// weights at the time when it is applied.
bool IsAnchoredAtServer(const JobSpec& job);

// Returns the number of samples of one step that one worker computes if it is alone.
int64_t StepSamples(const JobSpec& job);

// Returns true if a worker's contribution to a round consists of steps that it made for earlier
// grants. While the round is exchanged, the worker makes the steps for the grant of that round.
// True if the job has fragments or overlap, or if IsElastic().
bool DefersContributions(const JobSpec& job);

// Returns true if the servers only combine gradients, for programs that make the steps themselves.
// The servers' "weights" after a round are then the mean of the round's gradients.
bool ReducesOnly(const JobSpec& job);
// Returns true if the rates of the programs' own optimizers can hold: programs bring the model, and
// either make the steps themselves, or send the rate of a round's step with its contributions.
bool CanTakeProgramRates(const JobSpec& job);
// Returns true if the servers make the steps, with the rates that contributions bring.
bool TakesProgramRates(const JobSpec& job);

// Returns true if the mean of an element is taken over the contributions that sent the element.
bool DividesBySenders(const JobSpec& job);

// Returns true if a round's contributions are combined into a vector with their mean direction and
// their mean length, tensor by tensor: see DirectionMean in server/shard/contribution_mean.cc.
bool AveragesDirections(const JobSpec& job);

// Returns the default of feedback_decay for this encoding of contributions. It is 0.95 for top-k
// (SparseLoCo, arXiv:2508.15706), and 1 for all other encodings.
double DefaultFeedbackDecay(params::Encoding push_encoding);

// Message that says why a job with ReducesOnly() has no trained weights.
inline constexpr char kReducesOnly[] =
    "with --optimizer=reduce, servers hold the mean gradient of the last round and no weights; the "
    "training programs have the weights";

// Checks every setting, and that settings do not contradict each other. Errors: InvalidArgument
// naming the flag, the value and what is allowed.
absl::Status ValidateJobSpec(const JobSpec& job);

}  // namespace lodestar::job
