// SPDX-License-Identifier: Apache-2.0

// Cuts a round over workers: how many samples or steps each of them computes (--balance). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/job/job_spec.h"

namespace lodestar::rounds {

// Samples per second that members compute. 0 means not known.
struct MemberSpeeds {
  // Speeds of the members that share a round, in the order of its roster. Empty means that none is
  // known.
  std::vector<double> roster;
  double fastest = 0.0;  // speed of the fastest of all members
};

// CutStep() returns the number of samples that each member of a roster gets in one step. CutSteps()
// is for a round with one worker. It returns how many of `steps` local steps the worker makes. No
// other code depends on `balance`.
std::vector<int64_t> CutStep(job::Balance balance, int64_t total, absl::Span<const double> speeds);
int CutSteps(job::Balance balance, int steps, double speed, double fastest);

// Cuts `total` samples over workers in proportion to their speeds, so that all workers finish at
// the same time. Each worker gets at least one sample. Speeds are in samples per second. 0 means
// not known, and counts as the mean of the known speeds. Equal speeds give the result of
// CutEqually(). Requires: total >= speeds.size() >= 1; no speed is below 0.
std::vector<int64_t> CutBySpeed(int64_t total, absl::Span<const double> speeds);

// Cuts `total` into parts that differ by at most one. Larger parts come first.
std::vector<int64_t> CutEqually(int64_t total, int count);

// Returns the number of local steps that a worker of this speed makes while the fastest worker
// makes `steps`. Source: dynamic local updates, arXiv:2401.09135, section 4.2. The result is at
// least 1. If a speed is not known, the result is `steps`.
int StepsBySpeed(int steps, double speed, double fastest);

}  // namespace lodestar::rounds
