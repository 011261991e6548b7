// StragglerWatch: finds the worker that computes so slowly, round after round, that the others wait
// for it. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace lodestar {

class StragglerWatch {
 public:
  struct Member {
    std::string name;
    double speed = 0.0;  // Samples per second that it computes. 0 means not known.
  };
  struct Straggler {
    std::string name;
    double speed = 0.0;
    double usual_speed = 0.0;  // the median of the others
  };

  // A straggler computes at most this share of the median of the others ...
  static constexpr double kShare = 0.67;
  // ... in so many rounds in a row.
  static constexpr int kRounds = 10;

  // A round of these members is over. Returns the slowest once it has been a straggler for kRounds,
  // else an empty name. Each name is returned once.
  Straggler OnRound(absl::Span<const Member> members);

 private:
  std::string slowest_;
  int num_rounds_ = 0;  // in a row that slowest_ was a straggler
  std::set<std::string> told_;
};

}  // namespace lodestar
