// Settings of a job that the program which trains has a say in: where a client brings the model, it
// knows best with which optimizer, and the operator need not say it twice. Those that the operator
// has given stay. Wire form: ProposedSettings in proto/job.proto. Pure.
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

namespace lodestar {

// Named as the flags of ps_server.
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
  friend bool operator==(const ProposedSettings&, const ProposedSettings&) = default;

  bool is_empty() const { return *this == ProposedSettings(); }
};

// Sets the one of this name, from a text as its flag takes it. Errors: InvalidArgument: there is no
// such setting (the text has all), or the value is none of it.
absl::Status SetProposed(absl::string_view setting, absl::string_view value,
                         ProposedSettings& proposed);

// Returns the settings, by flag, that a job was saved with and that a program might have proposed.
// What cannot be read is left out.
ProposedSettings ProposedBySaved(const std::vector<JobSetting>& saved);

// What becomes of a proposal.
struct SettledJob {
  JobSpec job;
  std::vector<JobSetting> taken;      // with the values that were proposed
  std::vector<JobSetting> not_taken;  // ... because the operator has given others
};

// `given` has the flags of the operator's command line. An operator that gives --optimizer decides
// all that belongs to it (momentum, beta1, beta2, epsilon, weight_decay), and a global batch size
// is a batch size as well. The result is not validated.
SettledJob Settle(const JobSpec& job, const std::set<std::string>& given,
                  const ProposedSettings& proposed);

// Whether a job could have them, as far as that is not a matter of its other settings. Errors:
// InvalidArgument, as ValidateJobSpec().
absl::Status ValidateProposed(const ProposedSettings& proposed);

// "optimizer=sgd, learning_rate=0.5"; "nothing" for none.
std::string SettingsText(const std::vector<JobSetting>& settings);

}  // namespace lodestar
