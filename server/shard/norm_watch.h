// Looks at the norms of the contributions to one bucket: one that is far beyond what is usual is
// brought back to that, and told of. Pure.
//
// Usual is the highest that the median norm of a round has been of late: it rises at once and falls
// by a hundredth per round. As long as most of the workers are honest, it is theirs; of two, nobody
// can tell. Rounds without a gradient, as of rows that no batch had, say nothing. The norms of
// honest ones have heavy tails: late in a run most batches teach next to nothing and a few as much
// as in the beginning, so that a median of the last rounds would hold those few for wild (measured:
// tests/bench/results/poison.md). It changes only when a round ends, so that the order of arrival
// decides nothing.
//
// Where half of the contributions of a round are beyond the limit, it is the run that has changed,
// and no worker is to blame. Where contributions are applied alone, as many as a round may have
// count as one, and come one after the other, some workers more than once: there, early in a run,
// they differ that much by themselves. So more must be known before, and a worker is to blame for
// what most of its own are, or nobody else's.
//
// What is beyond is scaled to what is usual, not to the limit: whoever sends gradients that are a
// hundred times too long has the weight of an honest worker then; at the limit, of ten.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ids.h"

namespace lodestar {

// All that a process which goes on has to know.
struct UsualNorm {
  double norm = 0.0;
  int64_t contributions = 0;  // that it is known from, as far as that counts
  friend bool operator==(const UsualNorm&, const UsualNorm&) = default;
};

class NormWatch {
 public:
  // With fewer contributions seen than that, nobody knows what is usual.
  static constexpr int kMinContributions = 8;
  static constexpr int kMinContributionsAlone = 32;  // where they are applied alone
  static constexpr double kDecay = 0.99;             // per round

  // `limit`: how many times the usual norm a contribution may have; 0: nothing is watched.
  explicit NormWatch(double limit, int min_contributions = kMinContributions)
      : limit_(limit), min_contributions_(min_contributions) {}

  // By what a contribution of this norm is to be multiplied: 1 if it is within the limit, or if
  // nobody knows what is usual.
  float ScaleOf(double norm) const;
  // It is counted in the open round.
  void Count(WorkerId worker, Incarnation incarnation, Round round, double norm);
  int num_counted() const { return static_cast<int>(counted_.size()); }
  // By what the sum of the open round is to be multiplied. 1, but where nobody knew what is usual
  // when it came, and a few are far beyond the median of the round: then the sum, which they lead,
  // becomes as long as that of the others would be.
  float ScaleOfSum() const;

  // Those of the open round that were beyond the limit, while most were not.
  struct Finding {
    WorkerId worker;
    Incarnation incarnation;
    Round round;  // of its own, as it was counted
    double norm = 0.0;
    double usual = 0.0;
  };
  std::vector<Finding> EndRound();

  // Of the rounds that have ended.
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
  // Of the open round; empty if it is half of them.
  std::vector<Finding> Beyond() const;
  // Of those, for whom the workers are to blame.
  std::vector<Finding> Blamed(std::vector<Finding> beyond) const;

  const double limit_;
  const int min_contributions_;
  UsualNorm usual_;
  std::vector<Counted> counted_;
};

}  // namespace lodestar
