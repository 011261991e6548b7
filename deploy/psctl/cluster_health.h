// SPDX-License-Identifier: Apache-2.0

// Says whether a cluster is well. Scripts get the answer as the exit code of `psctl status`.
#pragma once

#include <cstdint>

#include "proto/status_service.pb.h"

namespace lodestar::psctl {

enum class ClusterHealth : uint8_t {
  kGood,           // the job trains, is ending, or is done
  kStandsStill,    // the job waits for workers or servers, and may go on by itself
  kNeedsOperator,  // the job has failed, or there was an alarm in the last ten minutes
};

ClusterHealth HealthOf(const v1::ClusterStatus& status);

}  // namespace lodestar::psctl
