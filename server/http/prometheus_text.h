// A cluster's status as Prometheus reads it: exposition format, version 0.0.4. Names follow its
// conventions: base units, `_total` for what only grows, shares from 0 to 1 as `_ratio`. What each
// means is in docs/reference/metrics.md. What is not known has no line.
#pragma once

#include <string>

#include "proto/status_service.pb.h"

namespace lodestar::http {

inline constexpr char kPrometheusType[] = "text/plain; version=0.0.4; charset=utf-8";

std::string PrometheusText(const v1::ClusterStatus& status);

}  // namespace lodestar::http
