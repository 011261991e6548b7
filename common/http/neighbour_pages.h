// SPDX-License-Identifier: Apache-2.0

// The runs that a run can be compared with, as JSON for the dashboard.
//   /api/runs               {"folder", "runs": [{"name", "written" (seconds since 1970),
//                           "unreadable" (reason; null means that it can be read)}],
//                           "notes": [...]}: see NeighbourList
//   /api/runs/history?name= history of one of these runs: see HistoryJson()
#pragma once

#include <string>

#include "common/http/http_server.h"

namespace lodestar::http {

// Adds the pages for the run in `run_folder`. Empty means that the run has no folder and the list
// is empty. Only one request at a time reads the disk, and others get 503 meanwhile: a disk that
// hangs must not block more than one thread of the server.
void AddNeighbourPages(const std::string& run_folder, HttpRoutes* routes);

}  // namespace lodestar::http
