// The settings of a job that say how it exchanges, where it chooses some of them itself
// (--mode=auto, --local_steps=auto, ...): which, as checkpoints keep them, and what its rounds are
// then. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_settings.h"
#include "common/job/job_spec.h"

namespace lodestar {

// What a job chooses itself. The rest is as the operator has given it.
struct OpenSettings {
  bool mode = false;  // with how contributions are combined: the outer optimizer
  bool local_steps = false;
  bool fragments = false;
  bool overlap = false;  // of steps, or of rounds
  bool push_encoding = false;
  bool pull_encoding = false;

  static OpenSettings All();
  bool any() const;
  // It is not known beforehand how many steps a round has, so the job's lengths are in steps.
  bool are_lengths_in_steps() const { return mode || local_steps || fragments; }
};

// Returns the mode of a job whose mode is open, until the job has chosen: one in which all settings
// that are given count.
Mode ModeUntilChosen(const OpenSettings& open);

// Returns true if the settings of `asked` that are not open are as in modes without local steps.
bool GoesWithoutLocalSteps(const JobSpec& asked, const OpenSettings& open);

// Returns `asked` with the settings of `chosen` that `open` names.
JobSpec WithOpenOf(const JobSpec& chosen, JobSpec asked, const OpenSettings& open);

// `job` with those of `saved` that say how it exchanges, as JobSettings() has written them; others
// are passed over. Errors: InvalidArgument naming the setting whose value means nothing.
absl::StatusOr<JobSpec> WithExchangeOf(const std::vector<JobSetting>& saved, JobSpec job);

// The rounds by which a job measures before it chooses, whatever `asked` says about that: a few
// local steps, in few bits, which show both ways of a path and the inner optimizer, without
// evaluations, and without an end.
JobSpec TrialOf(JobSpec asked);

// Returns the modes among which a job chooses: those in which all workers meet. Others are for
// workers of unequal speed.
std::vector<Mode> ModesToChooseFrom();

// Returns how many of the workers' steps are in a round.
double StepsPerRound(const JobSpec& job);

// Returns the same job with its lengths in rounds: the whole, the warm-up and the time between
// evaluations. They are given in steps if `open` says so.
JobSpec InRounds(JobSpec job, const OpenSettings& open);

}  // namespace lodestar
