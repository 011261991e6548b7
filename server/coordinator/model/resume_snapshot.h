// SPDX-License-Identifier: Apache-2.0

// What a job was resumed from, for the status. Plain data.
#pragma once

#include <string>
#include <vector>

#include "common/runtime/ids.h"

namespace lodestar::model {

struct SettingSnapshot {
  std::string flag;
  std::string saved;  // value in the checkpoint
  std::string asked;
  std::string effect;
};

// What the job was resumed from, and the settings that differ from those of the checkpoint.
struct ResumeSnapshot {
  std::string path;
  Round round;
  std::vector<SettingSnapshot> changes;
};

}  // namespace lodestar::model
