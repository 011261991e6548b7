// SPDX-License-Identifier: Apache-2.0

// What ps_server --http serves: the dashboard, and the status for people, scripts and monitoring.
//   /                 the dashboard: one page, which asks for /api/events only
//   /healthz          200 while the coordinator answers
//   /readyz           200 while workers can train; else 503, and why not
//   /statusz          the status as text, ?format=json as JSON: a ClusterStatus of the protocol
//   /metrics          for Prometheus: see prometheus_text.h
//   /api/history      curves and events of the run: see HistoryJson()
//   /api/events       server-sent events: `status`, a ClusterStatus, once a second, and `history`
//                     when it has changed
//   /api/orders       which orders the caller may give: see HttpRoutes
//   /api/orders/NAME  by POST, with what the order takes as a form: see JobOrders
#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/http/http_routes.h"
#include "common/runtime/clock.h"
#include "proto/status_service.pb.h"
#include "server/status/history_recorder.h"

namespace lodestar::http {

// The orders that operators can give through the page, by name. Each function returns one sentence
// about the result of the order. The functions are called from any thread, with the fields of the
// form and the name of the caller: see HttpRoutes.
using JobOrders = std::map<std::string, std::function<absl::StatusOr<std::string>(
                                            const HttpQuery&, const std::string& caller)>>;

// Returns the routes of the pages. `history` must outlive them. `read_status` is called from any
// thread. For `order_key` see HttpRoutes. /healthz and /readyz are open to callers without
// credentials, such as probes. Such a caller is not told why workers cannot train. The status for
// these callers is read at most once a second of `clock`.
HttpRoutes StatusPages(std::function<v1::ClusterStatus()> read_status,
                       const status::HistoryRecorder* history, const JobOrders& orders = {},
                       const std::string& order_key = "", Clock* clock = &Clock::Real());

// Returns an empty text if workers can train: all shards serve, and the job goes on. Otherwise
// returns the reason in one sentence.
std::string WhyNotReady(const v1::ClusterStatus& status);

}  // namespace lodestar::http
