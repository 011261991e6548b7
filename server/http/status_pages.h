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

// What operators can order through the page, by name. Each returns what has come of it, one
// sentence; it is called from any thread, with what the form says, and who orders: see HttpRoutes.
using JobOrders = std::map<std::string, std::function<absl::StatusOr<std::string>(
                                            const HttpQuery&, const std::string& caller)>>;

// `history` outlives the routes. `read_status` is called from any thread. `order_key`: see
// HttpRoutes. /healthz and /readyz are open to who has shown nothing, as probes do: without the
// reason, and from a status that is read once a second of `clock` at most, however many ask.
HttpRoutes StatusPages(std::function<v1::ClusterStatus()> read_status,
                       const status::HistoryRecorder* history, const JobOrders& orders = {},
                       const std::string& order_key = "", Clock* clock = &Clock::Real());

// Whether workers can train: all shards serve, and the job goes on. Else why not, one sentence.
std::string WhyNotReady(const v1::ClusterStatus& status);

}  // namespace lodestar::http
