// The settings of a job as pairs of flag and text: what checkpoints keep of a JobSpec, so that a
// resumed job can be compared with the one that was asked for; and which of them count for nothing.
#pragma once

#include <string>
#include <vector>

#include "common/job/job_spec.h"

namespace lodestar {

struct JobSetting {
  std::string flag;   // of ps_server, without dashes
  std::string value;  // as one would give it
  friend bool operator==(const JobSetting&, const JobSetting&) = default;
};

// Every setting but the model itself (common/params/model_spec_json.h), in the order in which they
// are shown. Numbers are written so that they read back to the bit.
std::vector<JobSetting> JobSettings(const JobSpec& job);

// A setting that can have no effect, whatever its value, because of what others say.
struct IdleSetting {
  std::string flag;
  std::string counts_with;  // flags that would make it count
};
std::vector<IdleSetting> IdleSettings(const JobSpec& job);

}  // namespace lodestar
