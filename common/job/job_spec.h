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

namespace lodestar {

enum class Mode : uint8_t { kSync, kAsync, kLocalSgd, kAsyncLocalSgd };
// kReduce makes no step: see ReducesOnly().
enum class OptimizerKind : uint8_t { kSgd, kMomentum, kNesterov, kAdamW, kReduce };
// kEasgd: see IsElastic().
enum class OuterOptimizerKind : uint8_t { kAverage, kSgd, kNesterov, kAdam, kEasgd };
// What a round of local steps is to the outer optimizer: the mean of what workers have sent, or of
// its directions and lengths apart; see AveragesDirections().
enum class OuterReduction : uint8_t { kMean, kDirection };
// What becomes of a contribution of local steps that goes against the outer momentum; kHeloco: see
// MomentumCorrection in server/optimizer/momentum_correction.h.
enum class MomentumCorrectionKind : uint8_t { kNone, kHeloco };
// async_local_sgd: from which weights the change is measured that a contribution is when it is
// applied: those that its worker began with, or the servers' at that moment. These are the same
// where nothing came in between.
enum class Anchor : uint8_t { kWorker, kServer };
enum class StalenessScaling : uint8_t { kNone, kInverse };
// What becomes of the local weights of a fragment when its new weights come, after --overlap_steps
// steps: a mean of both, or the new ones and the steps made meanwhile.
enum class MergeKind : uint8_t { kMix, kKeep };
// How much of a round each worker computes: as much as the others, or as much as it computes in the
// same time: samples of a step, or in async_local_sgd local steps.
enum class Balance : uint8_t { kEqual, kSpeed };
// By what the sum of top-k contributions is divided, element by element: the weight of all of them,
// or of those in which the element travelled.
enum class TopKDivisor : uint8_t { kWorkers, kSenders };

template <>
struct KindNames<Mode> {
  static constexpr absl::string_view kFlag = "mode";
  static constexpr NamedKind<Mode> kRows[] = {{Mode::kSync, "sync"},
                                              {Mode::kAsync, "async"},
                                              {Mode::kLocalSgd, "local_sgd"},
                                              {Mode::kAsyncLocalSgd, "async_local_sgd"}};
};
template <>
struct KindNames<OptimizerKind> {
  static constexpr absl::string_view kFlag = "optimizer";
  static constexpr NamedKind<OptimizerKind> kRows[] = {{OptimizerKind::kSgd, "sgd"},
                                                       {OptimizerKind::kMomentum, "momentum"},
                                                       {OptimizerKind::kNesterov, "nesterov"},
                                                       {OptimizerKind::kAdamW, "adamw"},
                                                       {OptimizerKind::kReduce, "reduce"}};
};
template <>
struct KindNames<OuterOptimizerKind> {
  static constexpr absl::string_view kFlag = "outer_optimizer";
  static constexpr NamedKind<OuterOptimizerKind> kRows[] = {
      {OuterOptimizerKind::kAverage, "average"},
      {OuterOptimizerKind::kSgd, "sgd"},
      {OuterOptimizerKind::kNesterov, "nesterov"},
      {OuterOptimizerKind::kAdam, "adam"},
      {OuterOptimizerKind::kEasgd, "easgd"}};
};
template <>
struct KindNames<OuterReduction> {
  static constexpr absl::string_view kFlag = "outer_reduction";
  static constexpr NamedKind<OuterReduction> kRows[] = {{OuterReduction::kMean, "mean"},
                                                        {OuterReduction::kDirection, "direction"}};
};
template <>
struct KindNames<MomentumCorrectionKind> {
  static constexpr absl::string_view kFlag = "momentum_correction";
  static constexpr NamedKind<MomentumCorrectionKind> kRows[] = {
      {MomentumCorrectionKind::kNone, "none"}, {MomentumCorrectionKind::kHeloco, "heloco"}};
};
template <>
struct KindNames<Anchor> {
  static constexpr absl::string_view kFlag = "anchor";
  static constexpr NamedKind<Anchor> kRows[] = {{Anchor::kWorker, "worker"},
                                                {Anchor::kServer, "server"}};
};
template <>
struct KindNames<MergeKind> {
  static constexpr absl::string_view kFlag = "merge";
  static constexpr NamedKind<MergeKind> kRows[] = {{MergeKind::kMix, "mix"},
                                                   {MergeKind::kKeep, "keep"}};
};
template <>
struct KindNames<StalenessScaling> {
  static constexpr absl::string_view kFlag = "staleness_scaling";
  static constexpr NamedKind<StalenessScaling> kRows[] = {{StalenessScaling::kNone, "none"},
                                                          {StalenessScaling::kInverse, "inverse"}};
};
template <>
struct KindNames<Balance> {
  static constexpr absl::string_view kFlag = "balance";
  static constexpr NamedKind<Balance> kRows[] = {{Balance::kEqual, "equal"},
                                                 {Balance::kSpeed, "speed"}};
};
template <>
struct KindNames<TopKDivisor> {
  static constexpr absl::string_view kFlag = "topk_divisor";
  static constexpr NamedKind<TopKDivisor> kRows[] = {{TopKDivisor::kWorkers, "workers"},
                                                     {TopKDivisor::kSenders, "senders"}};
};

// The optimizer of gradients: on the servers in sync and async, on each worker (inner) where
// HasLocalSteps().
struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.0;  // decoupled; on tensors that the layout marks
  friend bool operator==(const OptimizerSettings&, const OptimizerSettings&) = default;
};

// More would be smaller than a bucket for most models.
inline constexpr int kMaxFragments = 64;

// A worker holds the samples of one step in host memory.
inline constexpr int64_t kMaxStepSamples = int64_t{1} << 20;
// A grant, one message, has a learning rate for each.
inline constexpr int kMaxLocalSteps = 1 << 19;

inline constexpr double kDefaultNormLimit = 10.0;
// The best of Zhang et al. 2015, whose beta it is.
inline constexpr double kDefaultElasticRate = 0.9;
// The outer momentum of local steps whose contributions each have a step, or part of one, of their
// own: that they are late adds to it (Mitliagkas et al. 2016, arXiv:1605.09774).
inline constexpr double kDefaultAsynchronousMomentum = 0.8;

struct JobSpec {
  ModelSpec model;
  Mode mode = Mode::kSync;
  // In sync, so many contributions end a round; in async_local_sgd, so many make an outer step. 0
  // means as many as there are members.
  int quorum = 0;
  // For async and async_local_sgd. -1 means no bound. 0, in async, means lock step.
  int max_rounds_ahead = -1;
  // For async_local_sgd: how many updates a bucket may have had since the weights that a
  // contribution was computed on. A contribution that is older is not counted. -1 means no limit.
  int64_t max_staleness = -1;
  Balance balance = Balance::kEqual;
  StalenessScaling staleness_scaling = StalenessScaling::kNone;
  int local_steps = 1;  // HasLocalSteps(): H, between two exchanges of the same parameters
  // local_sgd: parts of the parameters that are exchanged in turn; see FragmentPlan.
  int fragments = 1;
  // local_sgd: steps of the next window that a worker makes before it has the weights of an
  // exchange.
  int overlap_steps = 0;
  MergeKind merge = MergeKind::kKeep;  // then
  double merge_alpha = 0.5;            // kMix: share of the local weights
  // local_sgd: an exchange has all of the next window; see EagerMerge.
  bool overlap_rounds = false;
  OuterOptimizerKind outer_optimizer = OuterOptimizerKind::kNesterov;
  double outer_learning_rate = 0.7;  // kEasgd: beta
  double outer_momentum = 0.9;       // of adam: beta1
  double outer_beta2 = 0.95;
  double outer_epsilon = 0.1;
  OuterReduction outer_reduction = OuterReduction::kMean;                      // local_sgd
  MomentumCorrectionKind momentum_correction = MomentumCorrectionKind::kNone;  // async_local_sgd
  Anchor anchor = Anchor::kWorker;                                             // async_local_sgd
  OptimizerSettings optimizer;
  LearningRateSchedule schedule;  // total_rounds is the length of the job
  double clip_norm = 0.0;         // 0 means that nothing is clipped
  // Samples per worker and local step. 0 means that global_batch_size is set.
  int64_t batch_size = 0;
  int64_t global_batch_size = 0;  // samples per local step, split over the roster
  int min_workers = 1;            // members before the job starts
  int keep_workers = 1;           // ... and for it to go on
  uint64_t seed = 1;
  int64_t eval_every = 0;    // in rounds; 0 means only at the end
  int64_t eval_samples = 0;  // 0 means all held-out samples
  int64_t bucket_bytes = kDefaultBucketBytes;
  Encoding push_encoding = Encoding::kFp32;  // of contributions
  Encoding pull_encoding = Encoding::kFp32;  // of weights; not fp32: of their changes
  // What encoding loses of one contribution or change is added to the next.
  bool error_feedback = true;
  // ... of a contribution, times this; above 0 and at most 1.
  double feedback_decay = 1.0;
  TopKDivisor topk_divisor = TopKDivisor::kWorkers;  // where push_encoding is top-k
  RobustMean robust_mean;  // of a round's contributions; where HasRosters()
  // How many times the usual norm of a bucket a contribution may have. 0 means no limit. See
  // NormWatch.
  double norm_limit = kDefaultNormLimit;
};

// Whether rounds are rounds of all members: a roster contributes to each, and their mean is
// applied. Otherwise each contribution is a round of its own. Asynchronous with max_rounds_ahead=0
// is lock step. `job` must have passed ValidateJobSpec().
bool HasRosters(const JobSpec& job);

// Whether workers make steps of their own between exchanges, with an optimizer of their own.
bool HasLocalSteps(const JobSpec& job);

// Whether workers keep weights of their own from exchange to exchange (elastic averaging, Zhang et
// al. 2015, arXiv:1412.6651): with beta the outer learning rate and s its share of a round's
// samples, a worker moves by beta * s of the way to the servers' weights, and these by the sum of
// what the workers have moved, which is beta of the way to the workers' mean. Of N equal workers
// each moves by alpha = beta / N.
bool IsElastic(const JobSpec& job);

// Whether contributions are changes from the servers' weights as they are applied, so that workers
// send weights.
bool IsAnchoredAtServer(const JobSpec& job);

// Samples of one step of one worker, if it has to do it alone.
int64_t StepSamples(const JobSpec& job);

// Whether a worker contributes to a round what it has computed on the grants before it, and
// computes on the grant of a round while that round's exchange is under way. So with fragments,
// overlap or weights of its own.
bool DefersContributions(const JobSpec& job);

// Whether the servers only combine gradients: what they have as weights after a round is the mean
// of its gradients, for programs that make the steps themselves.
bool ReducesOnly(const JobSpec& job);
// Whether an element's mean is that of the contributions in which it travelled.
bool DividesBySenders(const JobSpec& job);

// Whether a round's contributions are combined to the mean of their directions with the mean of
// their lengths, tensor by tensor: see DirectionMean in server/shard/contribution_mean.cc.
bool AveragesDirections(const JobSpec& job);

// What contributions in this encoding lose is carried over, and shrinks by this factor unless the
// job says otherwise. It is 0.95 for top-k (SparseLoCo, arXiv:2508.15706), else 1.
double DefaultFeedbackDecay(Encoding push_encoding);

// Why there are no trained weights of such a job, for people.
inline constexpr char kReducesOnly[] =
    "with --optimizer=reduce servers hold the mean gradient of the last round and no weights; the "
    "programs that train have them";

// Errors: InvalidArgument naming the flag, the value and what is allowed; also for combinations
// that contradict.
absl::Status ValidateJobSpec(const JobSpec& job);

}  // namespace lodestar
