// SPDX-License-Identifier: Apache-2.0

// NormWatch compares the norms of the contributions to one bucket. If a contribution is far longer
// than usual, it is scaled down to the usual norm, and reported. The class does no I/O and has no
// lock.
//
// The usual norm is the highest median norm of recent rounds: it rises at once and falls by a
// hundredth per round. As long as most workers are honest, the usual norm is theirs. With two
// workers it is unknown which of them is honest. Rounds with zero gradients (such as rows that no
// batch used) are ignored. The norms of honest workers have heavy tails: late in a run most batches
// teach almost nothing, and a few teach as much as in the beginning. A median of the last rounds
// would therefore be too low for these few (measured: tests/bench/results/poison.md). The usual
// norm changes only when a round ends, so that the order of arrival has no effect.
//
// If half of the contributions of a round are beyond the limit, the run has changed, and no worker
// is to blame. If contributions are applied one by one, a fixed number of them count as one round,
// and several may be from one worker. Early in a run, the norms of such contributions differ by
// more than the limit even if all workers are honest. So more contributions must be known before
// one is judged. A worker is to blame if most of its own contributions are beyond the limit. A
// worker with a single contribution is to blame if no other worker has one beyond the limit.
//
// A contribution beyond the limit is scaled to the usual norm, not to the limit. So a worker that
// sends gradients a hundred times too long has the weight of one honest worker. If it were scaled
// to the limit, it could have the weight of ten.
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
  // Returns the factor for the sum of the open round. The factor differs from 1 only if the usual
  // norm is not known, and a few norms are far beyond the median of the round. Then the sum gets
  // the length that it would have if these few had the median norm.
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
