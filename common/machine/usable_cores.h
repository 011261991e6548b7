// SPDX-License-Identifier: Apache-2.0

// Number of processor cores that a process may keep busy.
#pragma once

#include <string>

namespace lodestar::machine {

// Returns the number of cores that this process may run on (taskset, cpusets). If a quota of its
// control groups is lower (docker --cpus, CPUQuota= of a systemd unit, limits of a pod), returns
// the quota, rounded up. At least 1.
int UsableCores();

// Returns `num_cores`, or the lowest quota of this process's control groups if that is lower. At
// least 1. `root` is the folder that contains /proc and /sys.
int CoresWithinQuota(int num_cores, const std::string& root);

}  // namespace lodestar::machine
