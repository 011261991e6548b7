// SPDX-License-Identifier: Apache-2.0

// The settings that say how a job exchanges contributions and weights. The job may choose some of
// them itself (--mode=auto, --local_steps=auto, ...). These functions say which settings are open,
// read settings from checkpoints, and compute the lengths of the job in rounds. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_settings.h"
#include "common/job/job_spec.h"

namespace lodestar::job {

// Settings that a job chooses itself. All other settings stay as the operator has given them.
struct OpenSettings {
  bool mode = false;  // the mode, and the outer optimizer, which combines contributions
  bool local_steps = false;
  bool fragments = false;
  bool overlap = false;  // the settings overlap_steps and overlap_rounds
  bool push_encoding = false;
  bool pull_encoding = false;

  static OpenSettings All();
  bool any() const;
  // Returns true if it is not known beforehand how many steps a round has. The job's lengths are
  // then given in steps.
  bool are_lengths_in_steps() const { return mode || local_steps || fragments; }
};

// Returns the mode that a job with an open mode has until it chooses one. All settings that the
// operator has given have an effect in this mode.
Mode ModeUntilChosen(const OpenSettings& open);

// Returns true if the settings that the operator has given also allow modes without local steps.
bool GoesWithoutLocalSteps(const JobSpec& asked, const OpenSettings& open);

// Returns `asked`, with the open settings taken from `chosen`.
JobSpec WithOpenOf(const JobSpec& chosen, JobSpec asked, const OpenSettings& open);

// Returns `job` with the exchange settings of `saved` (see JobField::is_exchange). JobSettings()
// has written `saved`. Errors: InvalidArgument naming the setting whose value is not valid.
absl::StatusOr<JobSpec> WithExchangeOf(const std::vector<JobSetting>& saved, JobSpec job);

// Returns the trial job, which runs first. The job `asked` chooses its settings by the measurements
// of the trial. The trial always has the same exchange settings: a few local steps and small
// encodings. So it measures both directions of a path and the inner optimizer. The trial has no
// evaluations and does not end by itself.
JobSpec TrialOf(JobSpec asked);

// Returns the modes among which a job chooses. In these modes all workers take part in each round.
// The other modes are for workers of unequal speed.
std::vector<Mode> ModesToChooseFrom();

// Returns the number of steps that each worker makes in a round.
double StepsPerRound(const JobSpec& job);

// Returns `job` with its lengths in rounds: total, warm-up and time between evaluations. If
// open.are_lengths_in_steps(), they are given in steps and converted.
JobSpec InRounds(JobSpec job, const OpenSettings& open);

}  // namespace lodestar::job
