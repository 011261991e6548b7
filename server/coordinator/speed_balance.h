// Who computes how much of a round (--balance). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/job_spec.h"

namespace lodestar {

// Samples per second that members compute; 0: not known.
struct MemberSpeeds {
  std::vector<double> roster;  // of those who share a round, in its order; empty: of nobody known
  double fastest = 0.0;        // of all members
};

// The samples of one step for each of the roster, and the local steps of `steps` for one who has a
// round of its own. The only switches on the balance.
std::vector<int64_t> CutStep(Balance balance, int64_t total, absl::Span<const double> speeds);
int CutSteps(Balance balance, int steps, double speed, double fastest);

// Cuts `total` samples over workers in proportion to their speeds, samples per second, so that all
// are done at the same time; 0: not known, then the mean of those that are. Each gets at least one;
// equal speeds get what CutEqually() gives. Requires total >= speeds.size() >= 1 and no speed below
// 0.
std::vector<int64_t> CutBySpeed(int64_t total, absl::Span<const double> speeds);

// The parts differ by at most one, the larger ones come first.
std::vector<int64_t> CutEqually(int64_t total, int count);

// Local steps that a worker of this speed makes while the fastest makes `steps` (dynamic local
// updates, arXiv:2401.09135, section 4.2): at least 1; all of them if a speed is not known.
int StepsBySpeed(int steps, double speed, double fastest);

}  // namespace lodestar
