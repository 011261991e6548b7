// Main memory that a process may use: of the machine, of its control groups (containers, systemd
// units) and of its own limits (ulimit). What has the least free decides.
#pragma once

#include <cstdint>
#include <string>

namespace lodestar {

struct HostMemory {
  // All of the memory. 0 means that it is not known, and then nothing else here is.
  int64_t total_bytes = 0;
  // What of that can be taken now without pushing anything out: it is free, or has cached files.
  int64_t available_bytes = 0;
  std::string limited_by;  // "this machine", "the control group /jobs/7", "ulimit -v"
};

// `root` is where /proc and /sys are; tests have trees of their own. Limits that cannot be read are
// left out.
HostMemory ReadHostMemory(const std::string& root = "");

}  // namespace lodestar
