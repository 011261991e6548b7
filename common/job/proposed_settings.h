// SPDX-License-Identifier: Apache-2.0

// Settings of a job that the training program may propose. A client that brings the model knows the
// best optimizer for the model, so the operator need not set the optimizer again. Settings that the
// operator has given are not changed. Wire form: ProposedSettings in proto/job.proto. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/job/job_settings.h"
#include "common/job/job_spec.h"

namespace lodestar::job {

// The fields have the names of ps_server's flags.
struct ProposedSettings {
  std::optional<OptimizerKind> optimizer = std::nullopt;
  std::optional<double> momentum = std::nullopt;
  std::optional<double> beta1 = std::nullopt;
  std::optional<double> beta2 = std::nullopt;
  std::optional<double> epsilon = std::nullopt;
  std::optional<double> weight_decay = std::nullopt;
  std::optional<double> learning_rate = std::nullopt;
  std::optional<double> clip_norm = std::nullopt;
  std::optional<int64_t> batch_size = std::nullopt;
  bool has_program_rates = false;  // --lr_schedule=program, the only schedule to propose
  friend bool operator==(const ProposedSettings&, const ProposedSettings&) = default;

  bool is_empty() const { return *this == ProposedSettings(); }
};

// Sets the setting with this name from a text in the form that its flag takes. Errors:
// InvalidArgument (there is no setting with this name, and the text lists all; or the value is not
// valid).
absl::Status SetProposed(absl::string_view setting, absl::string_view value,
                         ProposedSettings& proposed);

// Returns those settings in `saved` that a program can propose. Values that cannot be read are left
// out.
ProposedSettings ProposedBySaved(const std::vector<JobSetting>& saved);

// A job with the accepted settings of a proposal.
struct SettledJob {
  JobSpec job;
  std::vector<JobSetting> taken;  // settings that were accepted, with the proposed values
  // Proposed settings that are ignored because the operator has given others.
  std::vector<JobSetting> not_taken;
};

// Applies a proposal to `job`. `given` has the flags of the operator's command line. If the
// operator has given --optimizer, all its settings (momentum, beta1, beta2, epsilon, weight_decay)
// count as given. If the operator has given a global batch size, the batch size counts as given
// also. If the operator has given any flag of the schedule, or the job does not take the rates of
// programs, its schedule holds. The result is not validated.
SettledJob Settle(const JobSpec& job, const std::set<std::string>& given,
                  const ProposedSettings& proposed);

// Checks the proposed values by themselves, without the other settings of a job. Errors:
// InvalidArgument, as ValidateJobSpec().
absl::Status ValidateProposed(const ProposedSettings& proposed);

// Returns text such as "optimizer=sgd, learning_rate=0.5", or "nothing" for an empty list.
std::string SettingsText(const std::vector<JobSetting>& settings);

}  // namespace lodestar::job
