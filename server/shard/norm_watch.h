// NormWatch looks at the norms of the contributions to one bucket. A contribution that is far
// beyond what is usual is brought back to that, and told of. The class is pure.
//
// The usual norm is the highest that the median norm of a round has been of late: it rises at once
// and falls by a hundredth per round. As long as most of the workers are honest, the usual norm is
// theirs; with two workers it cannot be told which one is. Rounds without a gradient, as of rows
// that no batch had, say nothing. The norms of honest workers have heavy tails: late in a run most
// batches teach next to nothing and a few as much as in the beginning. A median of the last rounds
// would therefore hold those few for wild (measured: tests/bench/results/poison.md). The usual norm
// changes only when a round ends, so that the order of arrival decides nothing.
//
// Where half of the contributions of a round are beyond the limit, it is the run that has changed,
// and no worker is to blame. Where contributions are applied alone, as many as a round may have
// count as one round. They come one after the other, some workers more than once, and early in a
// run they differ that much by themselves. So more must be known before a contribution is judged
// there. A worker is to blame there if most of its own contributions are beyond the limit. A worker
// with a single one is to blame if no other worker has one beyond the limit.
//
// What is beyond the limit is scaled to what is usual, not to the limit. A worker that sends
// gradients a hundred times too long has the weight of an honest worker then; at the limit, it
// would have that of ten.
#pragma once

#include <cstdint>
#include <vector>

#include "common/runtime/ids.h"

namespace lodestar::shard {

// All that a process which goes on has to know.
struct UsualNorm {
  double norm = 0.0;
  int64_t contributions = 0;  // that it is known from, as far as that counts
  friend bool operator==(const UsualNorm&, const UsualNorm&) = default;
};

class NormWatch {
 public:
  // If fewer contributions than that were seen, it is not known what is usual.
  static constexpr int kMinContributions = 8;
  static constexpr int kMinContributionsAlone = 32;  // where they are applied alone
  static constexpr double kDecay = 0.99;             // per round

  // `limit` is how many times the usual norm a contribution may have. 0 means that nothing is
  // watched.
  explicit NormWatch(double limit, int min_contributions = kMinContributions)
      : limit_(limit), min_contributions_(min_contributions) {}

  // Returns the factor of a contribution of this norm. It is 1 if the norm is within the limit, or
  // if it is not known what is usual.
  float ScaleOf(double norm) const;
  // It is counted in the open round.
  void Count(WorkerId worker, Incarnation incarnation, Round round, double norm);
  int num_counted() const { return static_cast<int>(counted_.size()); }
  // Returns the factor of the sum of the open round. It differs from 1 only if it was not known
  // what is usual when the round came, and a few norms are far beyond the median of the round. Then
  // the sum, which those few lead, becomes as long as that of the others would be.
  float ScaleOfSum() const;

  // A Finding is a contribution of the open round that was beyond the limit, while most were not.
  struct Finding {
    WorkerId worker;
    Incarnation incarnation;
    Round round;  // of its own, as it was counted
    double norm = 0.0;
    double usual = 0.0;
  };
  std::vector<Finding> EndRound();

  // Returns the usual norm by the rounds that have ended.
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
  // Returns the contributions of the open round that are beyond the limit. It is empty if these are
  // half of them or more.
  std::vector<Finding> Beyond() const;
  // Returns those of `beyond` that the workers are to blame for.
  std::vector<Finding> Blamed(std::vector<Finding> beyond) const;

  const double limit_;
  const int min_contributions_;
  UsualNorm usual_;
  std::vector<Counted> counted_;
};

}  // namespace lodestar::shard
