// What ps_server --http serves: the dashboard, and the status for people, scripts and monitoring.
//   /                 the dashboard: one page, which asks for /api/events only
//   /healthz          200 while the coordinator answers
//   /readyz           200 while workers can train; else 503, and why not
//   /statusz          the status as text, ?format=json as JSON: a ClusterStatus of the protocol
//   /metrics          for Prometheus: see prometheus_text.h
//   /api/history      curves and events of the run: see HistoryJson()
//   /api/events       server-sent events: `status`, a ClusterStatus, once a second, and `history`
//                     when it has changed
#pragma once

#include <functional>
#include <string>

#include "proto/status_service.pb.h"
#include "server/http/http_server.h"
#include "server/status/history_recorder.h"

namespace lodestar {

// `history` outlives the routes. `read_status` is called from any thread.
HttpRoutes StatusPages(std::function<v1::ClusterStatus()> read_status,
                       const HistoryRecorder* history);

// Whether workers can train: all shards serve, and the job goes on. Else why not, one sentence.
std::string WhyNotReady(const v1::ClusterStatus& status);

}  // namespace lodestar
