// SPDX-License-Identifier: Apache-2.0

// Main memory that a process may use, limited by the machine, by its control groups (containers,
// systemd units) and by its own limits (ulimit). The limit with the least available memory counts.
#pragma once

#include <cstdint>
#include <string>

namespace lodestar::machine {

struct HostMemory {
  // Total memory that the limit with the least available memory allows. 0 means that no limit could
  // be read.
  int64_t total_bytes = 0;
  // Memory that can be taken now without swapping: free memory and cached files.
  int64_t available_bytes = 0;
  std::string limited_by;  // "this machine", "the control group /jobs/7", "ulimit -v" or similar
};

// Returns the memory. `root` is the folder that contains /proc and /sys, and tests use trees of
// their own. Limits that cannot be read are ignored.
HostMemory ReadHostMemory(const std::string& root = "");

}  // namespace lodestar::machine
