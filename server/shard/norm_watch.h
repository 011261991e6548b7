// SPDX-License-Identifier: Apache-2.0

// NormWatch compares the norms of the contributions to one bucket. For a contribution that is far
// longer than usual, it gives the factor that scales it down to the usual norm, and a finding. It
// does no I/O and has no lock.
//
// Usual norm:
// - At the end of a round, the usual norm is multiplied by kDecay. If the round's median norm is
//   higher, it becomes that median.
// - Norms of 0 do not count for the median. If all norms of a round are 0, the usual norm does not
//   change.
// - A median of only the last rounds would be too low. Late in a run, most honest gradients are
//   small, but a few are as long as in the beginning. See tests/bench/results/poison.md.
// - Because it changes only at the end of a round, the order of arrival has no effect.
//
// Findings:
// - If at least half of a round's contributions are beyond the limit, there is no finding.
// - If each worker has one contribution in the round, every contribution beyond the limit is a
//   finding.
// - If contributions are applied one by one, a fixed number of them counts as a round. Then a
//   worker may have several. It is reported if most of them are beyond the limit. A worker with a
//   single one is reported if no other worker is beyond the limit.
//
// A contribution beyond the limit is scaled to the usual norm. If it were scaled to the limit, its
// worker would still have the influence of several honest workers.
#pragma once

#include <cstdint>
#include <vector>

#include "common/runtime/ids.h"

namespace lodestar::shard {

// The data that must survive a restart.
struct UsualNorm {
  double norm = 0.0;
  int64_t contributions = 0;  // contributions that `norm` is based on, at most the number needed
  friend bool operator==(const UsualNorm&, const UsualNorm&) = default;
};

class NormWatch {
 public:
  // Minimum number of contributions before the usual norm is known.
  static constexpr int kMinContributions = 8;
  static constexpr int kMinContributionsAlone = 32;  // if contributions are applied one by one
  static constexpr double kDecay = 0.99;             // per round

  // `limit` is the maximum norm of a contribution, as a multiple of the usual norm. 0 means that
  // norms are not watched.
  explicit NormWatch(double limit, int min_contributions = kMinContributions)
      : limit_(limit), min_contributions_(min_contributions) {}

  // Returns the factor for a contribution of this norm. The factor is 1 if the norm is within the
  // limit, or if the usual norm is not known yet.
  float ScaleOf(double norm) const;
  // Counts a contribution in the open round.
  void Count(WorkerId worker, Incarnation incarnation, Round round, double norm);
  int num_counted() const { return static_cast<int>(counted_.size()); }
  // Returns the factor for the sum of the open round. The factor is 1 if the usual norm is known,
  // or if no contribution is beyond the limit, measured by the round's median. Otherwise each norm
  // beyond the limit is replaced by the median. The factor is the sum of these norms, divided by
  // the sum of the original norms.
  float ScaleOfSum() const;

  // A Finding is a contribution of the open round that was beyond the limit while most others were
  // within it.
  struct Finding {
    WorkerId worker;
    Incarnation incarnation;
    Round round;  // the worker's own round, as passed to Count()
    double norm = 0.0;
    double usual = 0.0;
  };
  std::vector<Finding> EndRound();

  // Returns the usual norm, computed from the rounds that have ended.
  const UsualNorm& usual() const { return usual_; }
  void Restore(const UsualNorm& usual);

 private:
  struct Counted {
    WorkerId worker;
    Incarnation incarnation;
    Round round;
    double norm;
  };

  bool IsKnown() const;
  double MedianOfRound() const;
  // Returns the contributions of the open round that are beyond the limit. The result is empty if
  // half of the contributions or more are beyond it.
  std::vector<Finding> Beyond() const;
  // Returns those findings of `beyond` for which the worker is to blame.
  std::vector<Finding> Blamed(std::vector<Finding> beyond) const;

  const double limit_;
  const int min_contributions_;
  UsualNorm usual_;
  std::vector<Counted> counted_;
};

}  // namespace lodestar::shard
