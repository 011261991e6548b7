// SPDX-License-Identifier: Apache-2.0

// Finds the worker that computes so slowly, round after round, that the others wait for it. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace lodestar::stragglers {

class StragglerWatch {
 public:
  struct Member {
    std::string name;
    double speed = 0.0;  // samples per second that the member computes; 0 means not known
  };
  struct Straggler {
    std::string name;
    double speed = 0.0;
    double usual_speed = 0.0;  // median of the other members
  };

  // Maximum speed of a straggler, as a share of the median of the other members.
  static constexpr double kShare = 0.67;
  // Number of rounds in a row after which a straggler is reported.
  static constexpr int kRounds = 10;

  // Counts a round of these members. Returns the slowest member if it has been a straggler for
  // kRounds rounds in a row, and an empty name otherwise. Returns each name only once.
  Straggler OnRound(absl::Span<const Member> members);

 private:
  std::string slowest_;
  int num_rounds_ = 0;  // rounds in a row in which slowest_ was a straggler
  std::set<std::string> told_;
};

}  // namespace lodestar::stragglers
