// SPDX-License-Identifier: Apache-2.0

// Converts a cluster's status to Prometheus' exposition format, version 0.0.4. Names follow its
// conventions: base units, `_total` for counters, and `_ratio` for shares from 0 to 1.
// docs/reference/metrics.md says what each metric means. An unknown value has no line.
#pragma once

#include <string>

#include "proto/status_service.pb.h"

namespace lodestar::http {

inline constexpr char kPrometheusType[] = "text/plain; version=0.0.4; charset=utf-8";

std::string PrometheusText(const v1::ClusterStatus& status);

}  // namespace lodestar::http
