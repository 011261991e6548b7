// Whether a cluster is well, for scripts: the exit code of `psctl status`.
#pragma once

#include <cstdint>

#include "proto/status_service.pb.h"

namespace lodestar {

enum class ClusterHealth : uint8_t {
  kGood,           // trains, ends, or is done
  kStandsStill,    // waits for workers or servers: may change by itself
  kNeedsOperator,  // the job has failed, or an alarm of the last ten minutes
};

ClusterHealth HealthOf(const v1::ClusterStatus& status);

}  // namespace lodestar
