// SPDX-License-Identifier: Apache-2.0

// Computes how far the outer optimizer moves the weights in jobs with local steps, and how far is
// safe in short jobs. Pure.
#pragma once

#include <string>

#include "common/job/job_spec.h"

namespace lodestar::job {

// Defaults of --outer_learning_rate and --outer_momentum if the operator sets neither of them. The
// defaults in JobSpec are the published values of DiLoCo.
inline constexpr double kDefaultOuterLearningRate = 0.7;
inline constexpr double kDefaultOuterMomentum = 0.5;

// Maximum OuterStepRatio() of the default settings and of settings that `auto` chooses. Source:
// tests/bench/results/local_steps.md.
inline constexpr double kSafeOuterStepRatio = 1.5;

// Returns the factor by which the outer optimizer multiplies a change of the weights that is the
// same in many rounds. The factor is rate / (1 - momentum) for nesterov, the rate for sgd, and 1
// for average. Returns 0 without local steps, and for adam and easgd, which have no such factor.
double OuterStepRatio(const JobSpec& job);

// Returns true if OuterStepRatio() is above kSafeOuterStepRatio.
bool IsOuterStepLong(const JobSpec& job);

// Returns a warning of one sentence with flags and numbers if IsOuterStepLong(), else an empty
// text.
std::string DoubtOfOuterStep(const JobSpec& job);

}  // namespace lodestar::job
