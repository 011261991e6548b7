// The settings of a job that say how it exchanges, where it chooses some of them itself
// (--mode=auto, --local_steps=auto, ...): which, as checkpoints keep them, and what its rounds are
// then. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job_settings.h"
#include "common/job_spec.h"

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
  // Nobody knows beforehand of how many steps a round is, so that the job's lengths are in steps.
  bool are_lengths_in_steps() const { return mode || local_steps || fragments; }
};

// Of a job whose mode is open, until it has chosen: one in which all counts that is given.
Mode ModeUntilChosen(const OpenSettings& open);

// Whether what of `asked` is not open is as in modes without local steps.
bool GoesWithoutLocalSteps(const JobSpec& asked, const OpenSettings& open);

// `asked` with what `open` says of `chosen`.
JobSpec WithOpenOf(const JobSpec& chosen, JobSpec asked, const OpenSettings& open);

// `job` with those of `saved` that say how it exchanges, as JobSettings() has written them; others
// are passed over. Errors: InvalidArgument naming the setting whose value means nothing.
absl::StatusOr<JobSpec> WithExchangeOf(const std::vector<JobSetting>& saved, JobSpec job);

// The rounds by which a job measures before it chooses, whatever `asked` says about that: a few
// local steps, in few bits, which show both ways of a path and the inner optimizer, without
// evaluations, and without an end.
JobSpec TrialOf(JobSpec asked);

// Among which it chooses: those in which all workers meet. Others are for workers of unequal speed.
std::vector<Mode> ModesToChooseFrom();

// Of the workers' steps, how many are in a round.
double StepsPerRound(const JobSpec& job);

// The lengths of `job`, the whole, the warm-up and the time between evaluations, are given in
// steps, if `open` says so: the same job with them in rounds.
JobSpec InRounds(JobSpec job, const OpenSettings& open);

}  // namespace lodestar
