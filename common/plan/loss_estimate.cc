// SPDX-License-Identifier: Apache-2.0

#include "common/plan/loss_estimate.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/job/outer_step.h"

namespace lodestar::plan {
namespace {

// Losses of small models from scratch, 500 to 4000 steps (local_steps.md). kPerDoublingOfWorkers is
// in percent for each doubling of the workers, with weights averaged every 20 local steps. Longer
// jobs of small models are assumed to lose as much. For models of kSmallModel parameters and jobs
// of kLongJob steps or more, the published table is used.
constexpr double kMeasuredModel = 0.8e6;
constexpr double kMeasuredJob = 1000.0;
constexpr double kLongJob = 8000.0;
constexpr double kPerDoublingOfWorkers = 3.3;
constexpr double kPerDoublingOfWorkersIfDecays = 5.2;
// kPerDoublingOfWorkers is for kBaseLocalSteps local steps. Each doubling of the local steps adds
// kSharePerDoublingOfLocalSteps of it. Each halving subtracts as much.
constexpr double kBaseLocalSteps = 20.0;
constexpr double kSharePerDoublingOfLocalSteps = 0.14;
// OuterStepRatio() is the length of an outer step, compared with the step of an average. Each
// doubling of the ratio, up to kSafeOuterStepRatio, lowers the loss by kPerDoublingOfReach percent.
// With momentum, the first outer steps are shorter than the step of an average. Each such round
// after the first raises the loss by kPerRoundOfDelay percent.
constexpr double kPerDoublingOfReach = 6.5;
constexpr double kPerRoundOfDelay = 0.72;
// Maximum additional loss for each doubling of OuterStepRatio() above kSafeOuterStepRatio. The loss
// differs between seeds by a factor of ten. With more than kRatioLocalSteps local steps, it falls
// with the square of their number. For jobs that begin with trained weights, it is multiplied by
// kShareOfTrained.
constexpr double kPerDoublingOfRatio = 13.5;
constexpr double kRatioLocalSteps = 8.0;
constexpr double kShareOfTrained = 0.5;
// A schedule of the learning rate decays if its last rate is at most this part of its peak.
constexpr double kDecayedRate = 0.2;
// Loss in percent of DiLoCo with 1, 2, 4 and 8 workers, compared with data-parallel training. The
// arrays are for the smallest and the largest model, with 30 local steps (arXiv:2503.09799, table
// 4). Between these sizes the loss is interpolated by the logarithm of the size.
constexpr double kSmallModel = 35e6;
constexpr double kLargeModel = 2.4e9;
constexpr double kSmallModelPercent[] = {0.0, 0.7, 2.0, 3.9};
constexpr double kLargeModelPercent[] = {0.0, -0.1, 0.3, 1.1};
constexpr double kKnownLocalSteps = 30.0;
// Additional loss for each doubling of the local steps above 30. With 100 local steps, which are
// 1.7 doublings, models of 35 to 500 million parameters lose 0.3 to 0.9 % more than with 30
// (arXiv:2501.18512).
constexpr double kPercentPerDoubling = 0.45;
// Additional loss for each halving of the number of outer steps below kEnoughOuterSteps. It is
// added only if the outer momentum is above kShortMomentum. Measured losses (low_communication.md,
// "What auto chooses"):
// - With a momentum of 0.9: 5.0 % with 28 outer steps, 2.2 % with 50, 1.6 % with 56, 0.8 % with
//   100.
// - With a momentum of 0.8: 1.4 % with 28 outer steps, none with 50. The other terms explain the
//   1.4 %.
constexpr double kEnoughOuterSteps = 64.0;
constexpr double kShortMomentum = 0.8;
constexpr double kPercentPerHalving = 2.9;
// Loss of int8 and int4 in sync. Measured for int4: 0.4 and 0.3 % with 2 and 4 workers
// (encodings.md, low_communication.md).
constexpr double kSyncInt8 = 0.1;
constexpr double kSyncInt4 = 0.4;
// Loss of top-k if weights are pulled in int4 (low_communication.md). If sums are divided by the
// number of senders, 256 elements in 4 bits lose 0.9 and 0.7 %, and 64 elements in 2 bits lose 2.3
// %. If sums are divided by the number of workers, the loss is 10 %.
constexpr double kTopK256In4 = 0.9;
constexpr double kTopK64In2 = 2.3;
constexpr double kTopKByWorkers = 10.0;
constexpr int kManyElements = 256;
// Loss of up to 10 steps of overlap. Published: below 0.2 % (arXiv:2501.18512). Measured here: 0.1
// % with 2 steps.
constexpr double kOverlap = 0.2;
constexpr int kKnownOverlapSteps = 10;
// Minimum number of local steps with overlap. With fewer, the outer momentum amplifies late
// contributions: the loss was 35 % with 3 local steps, 20 % with 5 and 1.7 % with 9. With at least
// 20 local steps and fragments, overlap costs only kOverlap (low_communication.md).
constexpr int kLeastStepsWithOverlap = 20;
// Minimum number of local steps with an outer momentum. Fewer local steps were not measured.
constexpr int kLeastSteps = 8;
// Loss of overlapped rounds: 3.5 % with two workers, 16 % with four (low_communication.md).
constexpr double kOverlappedRoundsOfTwo = 3.5;
constexpr double kOverlappedRoundsOfMore = 16.0;

// Returns the loss of `workers` workers in the table of kSmallModelPercent and kLargeModelPercent.
// Interpolates by the logarithms of workers and model size. Beyond 8 workers, each doubling adds as
// much as from 4 to 8.
double PercentOfWorkers(int workers, double parameters) {
  const double size = std::clamp(
      std::log(parameters / kSmallModel) / std::log(kLargeModel / kSmallModel), 0.0, 1.0);
  const auto of_column = [size](int i) {
    return kSmallModelPercent[i] + size * (kLargeModelPercent[i] - kSmallModelPercent[i]);
  };
  const double doublings = std::log2(static_cast<double>(std::max(workers, 1)));
  const int column = std::min(static_cast<int>(doublings), 2);
  return of_column(column) + (doublings - column) * (of_column(column + 1) - of_column(column));
}

double PercentOfTopK(const job::JobSpec& job) {
  if (!job::DividesBySenders(job)) return kTopKByWorkers;
  const bool is_rich = job.push_encoding.topk() >= kManyElements;
  return is_rich ? kTopK256In4 : kTopK64In2;
}

class Sum {
 public:
  void Add(double percent, std::string why) {
    percent_ += percent;
    terms_.push_back(absl::StrFormat("%s %+.1f %%", why, percent));
  }
  LossEstimate Get(absl::string_view none) const {
    return {.percent = percent_,
            .reason = terms_.empty() ? std::string(none) : absl::StrJoin(terms_, ", ")};
  }

 private:
  double percent_ = 0.0;
  std::vector<std::string> terms_;
};

LossEstimate OfGradients(const job::JobSpec& job) {
  if (job.push_encoding.is_topk()) {
    return {.percent = std::nullopt, .reason = "the loss with top-k of gradients was not measured"};
  }
  Sum sum;
  if (job.push_encoding == params::Encoding::kInt8) sum.Add(kSyncInt8, "int8");
  if (job.push_encoding == params::Encoding::kInt4) sum.Add(kSyncInt4, "int4");
  return sum.Get("sync computes the same as one machine with the whole batch");
}

bool Decays(const job::LearningRateSchedule& schedule) {
  return schedule.falls() && schedule.minimum <= kDecayedRate * schedule.peak;
}

double Doublings(double value, double base) { return std::log2(std::max(value, 1e-9) / base); }

// Returns the maximum loss by outer steps that are longer than kSafeOuterStepRatio.
double PercentOfOvershoot(const job::JobSpec& job, const TrainingFacts& training) {
  if (!job::IsOuterStepLong(job)) return 0.0;
  const double relaxed = std::min(1.0, kRatioLocalSteps / job.local_steps);
  return (training.begins_with_trained_weights ? kShareOfTrained : 1.0) * kPerDoublingOfRatio *
         relaxed * relaxed * Doublings(job::OuterStepRatio(job), job::kSafeOuterStepRatio);
}

// Returns the additional loss of outer steps compared with an average, without
// PercentOfOvershoot(). A negative number means less loss than an average. `ratio` is that of
// OuterStepRatio(). A momentum of 0 means sgd. A ratio of 1 with a momentum of 0 is the average
// itself.
double PercentOfReach(double ratio, double momentum) {
  double percent = -kPerDoublingOfReach * Doublings(std::min(ratio, job::kSafeOuterStepRatio), 1.0);
  if (ratio > 1.0 && momentum > 0.0) {
    // An outer step has the length of an average's step once rate * (1 + momentum + momentum^2 +
    // ...) reaches 1. That takes `rounds` rounds.
    const double rounds = std::log(1.0 - 1.0 / ratio) / std::log(momentum);
    percent += kPerRoundOfDelay * std::max(rounds - 1.0, 0.0);
  }
  return percent;
}

double PercentOfDefaultReach() {
  return PercentOfReach(job::kDefaultOuterLearningRate / (1.0 - job::kDefaultOuterMomentum),
                        job::kDefaultOuterMomentum);
}

double PercentOfReach(const job::JobSpec& job) {
  // PercentOfTopK() was measured with outer steps of sgd. It already includes their loss.
  if (job.push_encoding.is_topk()) return PercentOfDefaultReach();
  const double ratio = job::OuterStepRatio(job);
  // adam and easgd were not measured. They are assumed to be like an average.
  if (ratio == 0.0) return PercentOfReach(1.0, 0.0);
  const bool has_momentum = job.outer_optimizer == job::OuterOptimizerKind::kNesterov;
  return PercentOfReach(ratio, has_momentum ? job.outer_momentum : 0.0);
}

// Returns the loss of small models that are trained from scratch.
double PercentFromScratch(const job::JobSpec& job, int workers) {
  const double of_average =
      (Decays(job.schedule) ? kPerDoublingOfWorkersIfDecays : kPerDoublingOfWorkers) *
      Doublings(workers, 1.0) *
      (1.0 + kSharePerDoublingOfLocalSteps * Doublings(job.local_steps, kBaseLocalSteps));
  return of_average + PercentOfReach(job);
}

// Returns 1 for jobs as large and long as the published ones, and 0 for jobs like those measured
// here. Between them it interpolates by the logarithms of size and length.
double ShareOfPublished(const TrainingFacts& training) {
  const auto share = [](double value, double from, double to) {
    return std::clamp(Doublings(value, from) / Doublings(to, from), 0.0, 1.0);
  };
  return share(static_cast<double>(training.num_parameters), kMeasuredModel, kSmallModel) *
         share(static_cast<double>(*training.total_steps), kMeasuredJob, kLongJob);
}

// Adds the loss that comes from training separately between exchanges. Does not add the losses by
// late contributions and by encodings.
void AddWindows(const job::JobSpec& job, const TrainingFacts& training, Sum& sum) {
  const int workers = training.num_workers;
  const std::string who = absl::StrCat(workers, workers == 1 ? " worker trains" : " workers train");
  const auto parameters = static_cast<double>(training.num_parameters);
  double published = PercentOfWorkers(workers, parameters);
  if (job.local_steps > kKnownLocalSteps) {
    published += kPercentPerDoubling * Doublings(job.local_steps, kKnownLocalSteps);
  }
  double percent = published;
  std::string length = "many";
  // Fine-tuning lost no more than the published values, so nothing is added for it (local_steps.md:
  // -1.7 to +1.0 %).
  if (!training.begins_with_trained_weights && workers > 1) {
    percent += std::max(PercentOfReach(job) - PercentOfDefaultReach(), 0.0);
  }
  if (!training.begins_with_trained_weights && training.total_steps.has_value()) {
    const double measured = std::max(percent, PercentFromScratch(job, workers));
    percent += (1.0 - ShareOfPublished(training)) * (measured - percent);
  }
  if (training.total_steps.has_value()) length = absl::StrCat(*training.total_steps);
  sum.Add(percent, absl::StrCat(who, " without exchange for ", job.local_steps,
                                " steps at a time (of ", length, " in all)"));
  const bool has_momentum = job.outer_optimizer == job::OuterOptimizerKind::kNesterov;
  if (const double overshoot = PercentOfOvershoot(job, training); overshoot > 0.0) {
    sum.Add(overshoot,
            absl::StrFormat("outer steps are up to %.3g times as long as the workers' changes",
                            job::OuterStepRatio(job)));
  }
  if (has_momentum && job.outer_momentum > kShortMomentum && training.total_steps.has_value()) {
    const double outer_steps = std::max(
        1.0, static_cast<double>(*training.total_steps) / static_cast<double>(job.local_steps));
    if (outer_steps < kEnoughOuterSteps) {
      sum.Add(kPercentPerHalving * std::log2(kEnoughOuterSteps / outer_steps),
              absl::StrFormat("only %.0f outer steps", outer_steps));
    }
  }
}

LossEstimate OfLocalSteps(const job::JobSpec& job, const TrainingFacts& training) {
  const int workers = training.num_workers;
  if (job.overlap_steps > 0 && job.local_steps < kLeastStepsWithOverlap) {
    return {.percent = std::nullopt,
            .reason = absl::StrCat("overlap with only ", job.local_steps,
                                   " local steps; with fewer than ", kLeastStepsWithOverlap,
                                   ", the loss is not known, but it was 20 % with 5 steps")};
  }
  const bool has_momentum = job.outer_optimizer == job::OuterOptimizerKind::kNesterov;
  if (has_momentum && job.local_steps < kLeastSteps) {
    return {
        .percent = std::nullopt,
        .reason = absl::StrCat(job.local_steps, " local steps with --outer_optimizer=nesterov, ",
                               "fewer than ", kLeastSteps, ": the loss was not measured")};
  }
  Sum sum;
  AddWindows(job, training, sum);
  if (job.push_encoding.is_topk()) sum.Add(PercentOfTopK(job), "top-k");
  if (job.overlap_rounds && workers > 1) {
    sum.Add(workers == 2 ? kOverlappedRoundsOfTwo : kOverlappedRoundsOfMore,
            "changes that arrive one round late (--overlap_rounds)");
  } else if (job.overlap_steps > 0) {
    const double share = std::max(1.0, 1.0 * job.overlap_steps / kKnownOverlapSteps);
    sum.Add(kOverlap * share, absl::StrCat(job.overlap_steps, " steps of overlap"));
  }
  return sum.Get("none");
}

}  // namespace

LossEstimate EstimateLoss(const job::JobSpec& job, const TrainingFacts& training) {
  if (job::HasLocalSteps(job)) return OfLocalSteps(job, training);
  if (job.mode != job::Mode::kAsync || training.num_workers == 1) return OfGradients(job);
  return {.percent = std::nullopt,
          .reason = absl::StrCat("gradients are up to ", training.num_workers - 1,
                                 " updates old; the loss depends on the model")};
}

}  // namespace lodestar::plan
