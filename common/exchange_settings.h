// The settings of a job that say how it exchanges, where it has chosen them itself (--mode=auto):
// as checkpoints keep them, and what its rounds are then. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job_settings.h"
#include "common/job_spec.h"

namespace lodestar {

// Flags of ps_server that such a job decides itself.
const std::set<std::string>& ExchangeSettingNames();

// `job` with those of `saved` that say how it exchanges, as JobSettings() has written them; others
// are passed over. Errors: InvalidArgument naming the setting whose value means nothing.
absl::StatusOr<JobSpec> WithExchangeOf(const std::vector<JobSetting>& saved, JobSpec job);

// The rounds by which a job measures before it chooses, whatever `asked` says about that: a few
// local steps, in few bits, which show both ways of a path and the inner optimizer, without
// evaluations, and without an end.
JobSpec TrialOf(JobSpec asked);

// Among which it chooses: those in which all workers meet. Others are for workers of unequal speed.
std::vector<Mode> ModesToChooseFrom();

// The lengths of `job`, the whole, the warm-up and the time between evaluations, are given in
// steps: the same job with them in rounds.
JobSpec InRounds(JobSpec job);

}  // namespace lodestar
