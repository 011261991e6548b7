// SPDX-License-Identifier: Apache-2.0

// Finds workers that train on the same samples: their losses are equal to the last bit, round by
// round.
#pragma once

#include <array>
#include <map>
#include <optional>

#include "common/runtime/ids.h"

namespace lodestar::faults {

class EqualLosses {
 public:
  // Number of rounds in a row in which two workers must report equal losses.
  static constexpr int kRounds = 3;

  // Records the loss that the worker reports for a round. Returns a worker whose losses of the last
  // kRounds rounds up to this one are equal to those of `worker`. Losses that do not change from
  // round to round say nothing about the samples, so they never count.
  std::optional<WorkerId> OnReport(WorkerId worker, Round round, double loss);
  void Forget(WorkerId worker);
  void ForgetAll();

 private:
  using Losses = std::array<double, kRounds>;  // the newest first
  struct History {
    Round newest;
    int num_losses = 0;  // at most kRounds
    Losses losses = {};
  };

  std::map<WorkerId, History> histories_;
  // For the newest two rounds: the worker that was first to end the round with these losses.
  std::map<Round, std::map<Losses, WorkerId>> firsts_;
};

}  // namespace lodestar::faults
