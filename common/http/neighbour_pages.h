// The runs that a run can be compared with, as JSON for the dashboard.
//   /api/runs               {"folder", "runs": [{"name", "written" (seconds since 1970),
//   "unreadable"
//                           (why; null: it can be read)}], "notes": [...]}: see NeighbourList
//   /api/runs/history?name= one of them: see HistoryJson()
#pragma once

#include <string>

#include "common/http/http_server.h"

namespace lodestar {

// `run_folder`: of the run that the routes are of; empty: it has none, and so no neighbours. One
// request at a time looks at the disk, others are answered 503 meanwhile: a disk that stands still
// must not hold more than one thread of the server.
void AddNeighbourPages(const std::string& run_folder, HttpRoutes* routes);

}  // namespace lodestar
