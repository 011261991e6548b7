// Cuts a round over workers: how much of it each of them computes (--balance). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/job/job_spec.h"

namespace lodestar {

// Samples per second that members compute. 0 means not known.
struct MemberSpeeds {
  // The speeds of the members that share a round, in the order of its roster. Empty means that none
  // is known.
  std::vector<double> roster;
  double fastest = 0.0;  // of all members
};

// CutStep() returns the samples of one step for each of the roster. CutSteps() returns how many of
// `steps` local steps a worker makes that has a round of its own. No other code switches on the
// balance.
std::vector<int64_t> CutStep(Balance balance, int64_t total, absl::Span<const double> speeds);
int CutSteps(Balance balance, int steps, double speed, double fastest);

// Cuts `total` samples over workers in proportion to their speeds, samples per second, so that all
// are done at the same time. A speed of 0 means not known: the mean of the known ones is taken for
// it. Each worker gets at least one sample. Equal speeds get what CutEqually() gives. Requires
// total >= speeds.size() >= 1 and no speed below 0.
std::vector<int64_t> CutBySpeed(int64_t total, absl::Span<const double> speeds);

// Cuts `total` into parts that differ by at most one. The larger ones come first.
std::vector<int64_t> CutEqually(int64_t total, int count);

// Returns the local steps that a worker of this speed makes while the fastest makes `steps`
// (dynamic local updates, arXiv:2401.09135, section 4.2). It is at least 1, and all of them if a
// speed is not known.
int StepsBySpeed(int steps, double speed, double fastest);

}  // namespace lodestar
