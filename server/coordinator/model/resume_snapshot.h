// What a job was resumed from, as operators see it. Plain data.
#pragma once

#include <string>
#include <vector>

#include "common/runtime/ids.h"

namespace lodestar {

struct SettingSnapshot {
  std::string flag;
  std::string saved;  // in the checkpoint
  std::string asked;
  std::string effect;
};

// What the job was resumed from, and the settings that are not those of the checkpoint.
struct ResumeSnapshot {
  std::string path;
  Round round;
  std::vector<SettingSnapshot> changes;
};

}  // namespace lodestar
