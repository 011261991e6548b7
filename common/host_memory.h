// Main memory that a process may use: of the machine, of its control groups (containers, systemd
// units) and of its own limits (ulimit). What has the least free decides.
#pragma once

#include <cstdint>
#include <string>

namespace lodestar {

struct HostMemory {
  int64_t total_bytes = 0;  // 0: unknown, as is all else
  // Of these, what can be taken now without pushing anything out: free, or cached files.
  int64_t available_bytes = 0;
  std::string limited_by;  // "this machine", "the control group /jobs/7", "ulimit -v"
};

// `root` is where /proc and /sys are; tests have trees of their own. Limits that cannot be read are
// left out.
HostMemory ReadHostMemory(const std::string& root = "");

}  // namespace lodestar
