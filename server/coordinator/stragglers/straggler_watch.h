// SPDX-License-Identifier: Apache-2.0

// Finds the worker that was the slowest, and far slower than the others, in many rounds in a row.
// Pure.
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

  // A member is a straggler if its speed is at most this share of the other members' median speed.
  static constexpr double kShare = 0.67;
  // Number of rounds in a row after which a straggler is reported.
  static constexpr int kRounds = 10;

  // Counts a round with these members. Returns the slowest member if it was a straggler in kRounds
  // rounds in a row. Otherwise returns an empty name. A name is returned at most once.
  Straggler OnRound(absl::Span<const Member> members);

 private:
  std::string slowest_;
  int num_rounds_ = 0;  // rounds in a row in which slowest_ was a straggler
  std::set<std::string> told_;
};

}  // namespace lodestar::stragglers
