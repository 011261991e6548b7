// SPDX-License-Identifier: Apache-2.0

// The settings of a job as pairs of flag and text. Checkpoints keep them, so that a resumed job can
// be compared with the settings that were asked for. Also says which settings have no effect.
#pragma once

#include <string>
#include <vector>

#include "common/job/job_spec.h"

namespace lodestar::job {

struct JobSetting {
  std::string flag;   // flag of ps_server, without dashes
  std::string value;  // value in the form that the flag takes
  friend bool operator==(const JobSetting&, const JobSetting&) = default;
};

// Returns all settings except the model itself (common/params/model_spec_json.h), in the order in
// which they are shown. Numbers read back to the same bits.
std::vector<JobSetting> JobSettings(const JobSpec& job);

// A setting that has no effect, whatever its value, because of the values of other settings.
struct IdleSetting {
  std::string flag;
  std::string counts_with;  // flags with which the setting would have an effect
};
std::vector<IdleSetting> IdleSettings(const JobSpec& job);

}  // namespace lodestar::job
