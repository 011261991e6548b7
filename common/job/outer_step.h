// How far the outer optimizer of local steps goes, and how far is safe in short jobs. Pure.
#pragma once

#include <string>

#include "common/job/job_spec.h"

namespace lodestar {

// What a job has that gives no outer step. JobSpec begins with the published values of DiLoCo.
inline constexpr double kDefaultOuterLearningRate = 0.7;
inline constexpr double kDefaultOuterMomentum = 0.5;

// Highest OuterStepRatio() of defaults and of what `auto` chooses. Source:
// tests/bench/results/local_steps.md.
inline constexpr double kSafeOuterStepRatio = 1.5;

// Returns by how much the outer optimizer multiplies a change of the weights that many rounds have
// in common: rate / (1 - momentum) of nesterov, the rate of sgd, 1 of average. Returns 0 without
// local steps, and for adam and easgd, which have no such factor.
double OuterStepRatio(const JobSpec& job);

// Returns whether OuterStepRatio() is above kSafeOuterStepRatio.
bool IsOuterStepLong(const JobSpec& job);

// Returns one sentence with flags and numbers if IsOuterStepLong(), else nothing.
std::string DoubtOfOuterStep(const JobSpec& job);

}  // namespace lodestar
