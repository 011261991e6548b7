// What becomes of a job's settings when it is resumed from a checkpoint that was written with
// others: which differ, what happens, and which contradict what the checkpoint holds. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/job/job_settings.h"
#include "common/job/job_spec.h"

namespace lodestar::checkpoint {

struct SettingChange {
  std::string flag;
  std::string saved;  // what the checkpoint was written with
  std::string asked;
  std::string effect;
  bool is_refused = false;
};

// What decides the learning rate of the next step beside the settings.
struct RateAtResume {
  int64_t place = 0;   // rounds of the schedule that are done
  double scale = 1.0;  // what the schedule's rate is multiplied with, before and after
  // Lets the rate rise by more than a tenth.
  bool may_rise = false;
};

// Returns the settings that differ, in the order of JobSettings(), then of `saving`, and last the
// learning rate of the next step if that differs. `saving`: the settings asked for that say which
// checkpoints are written and kept. `state_names`: the vectors that the server's optimizer of the
// job asked for keeps. Settings that the manifest does not have, because an older release wrote it,
// are passed over.
std::vector<SettingChange> CompareSettings(const Manifest& manifest, const JobSpec& asked,
                                           const std::vector<std::string>& state_names,
                                           const RateAtResume& rate,
                                           const std::vector<JobSetting>& saving = {});

// FailedPrecondition naming all that are refused, and what to give instead, if there are any.
// `manifest`: of the checkpoint.
absl::Status CheckNoneRefused(const std::vector<SettingChange>& changes, const Manifest& manifest,
                              const std::string& checkpoint);

// Lines with a head, aligned: setting, checkpoint, asked, what happens. Empty for no changes.
std::string SettingsTable(const std::vector<SettingChange>& changes);

}  // namespace lodestar::checkpoint
