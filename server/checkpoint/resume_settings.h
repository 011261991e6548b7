// SPDX-License-Identifier: Apache-2.0

// Compares a job's settings with those of the checkpoint that it is resumed from. Says which
// settings differ, what the change does, and which settings contradict what the checkpoint holds.
// Does no I/O.
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
  std::string saved;  // value that the checkpoint was written with
  std::string asked;
  std::string effect;
  bool is_refused = false;
};

// RateAtResume holds what the learning rate of the next step depends on, besides the settings.
struct RateAtResume {
  int64_t place = 0;                // number of rounds of the schedule that are done
  double scale = 1.0;               // factor that the checkpoint has for the schedule's rate
  double scale_by_operators = 1.0;  // the operators' part of this factor
  bool is_given = false;            // True if --learning_rate is given.
  // True means that a rise of the rate by more than a tenth is not refused.
  bool may_rise = false;
};

// Returns the settings that differ between the checkpoint and the job `asked`. They are in the
// order of JobSettings(), then of `saving`, then the learning rate of the next step. `saving` has
// the job's settings about which checkpoints are written and kept. `state_names` are the vectors
// that the server's optimizer has for `asked`. Ignores settings that the manifest lacks, because an
// older release wrote it.
std::vector<SettingChange> CompareSettings(const checkpoints::Manifest& manifest,
                                           const job::JobSpec& asked,
                                           const std::vector<std::string>& state_names,
                                           const RateAtResume& rate,
                                           const std::vector<job::JobSetting>& saving = {});

// Returns whether the restart drops the operators' part of the factor. It does if --learning_rate
// is given with another value than that of the checkpoint. `changes` are those of
// CompareSettings().
bool DropsOrderedRate(const std::vector<SettingChange>& changes, const RateAtResume& rate);

// Returns the factor for the schedule's rate after the restart.
double ScaleAfter(const std::vector<SettingChange>& changes, const RateAtResume& rate);

// Returns a warning that --learning_rate replaces the rate that an operator has set. Names both
// rates. The text is empty unless DropsOrderedRate().
std::string DroppedRateText(const std::vector<SettingChange>& changes,
                            const checkpoints::Manifest& manifest, const job::JobSpec& asked,
                            const RateAtResume& rate);

// Returns FailedPrecondition if any change is refused. The error names all refused changes, and
// says which flags to give instead. `manifest` is that of the checkpoint.
absl::Status CheckNoneRefused(const std::vector<SettingChange>& changes,
                              const checkpoints::Manifest& manifest, const std::string& checkpoint);

// Returns an aligned table with a header: setting, checkpoint, asked, what happens. The text is
// empty if there are no changes.
std::string SettingsTable(const std::vector<SettingChange>& changes);

}  // namespace lodestar::checkpoint
