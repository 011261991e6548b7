// SPDX-License-Identifier: Apache-2.0

#include "common/job/job_settings.h"

#include "common/job/job_fields.h"

namespace lodestar::job {

std::vector<JobSetting> JobSettings(const JobSpec& job) {
  std::vector<JobSetting> settings;
  for (const JobField& field : JobFields()) {
    settings.push_back({std::string(field.name), TextOf(field.get(job))});
  }
  return settings;
}

std::vector<IdleSetting> IdleSettings(const JobSpec& job) {
  std::vector<IdleSetting> idle;
  for (const JobField& field : JobFields()) {
    if (field.counts == nullptr || field.counts(job)) continue;
    idle.push_back({std::string(field.name), std::string(field.counts_with)});
  }
  return idle;
}

}  // namespace lodestar::job
