// How many processor cores a process may keep busy.
#pragma once

#include <string>

namespace lodestar {

// The cores that this process may run on (taskset, cpusets), or fewer if a quota of its control
// groups (docker --cpus, CPUQuota= of a systemd unit, limits of a pod) is less; a quota is rounded
// up. At least 1.
int UsableCores();

// The same for a process that may run on `num_cores`. `root` is where /proc and /sys are.
int CoresWithinQuota(int num_cores, const std::string& root);

}  // namespace lodestar
