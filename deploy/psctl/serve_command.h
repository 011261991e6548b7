// SPDX-License-Identifier: Apache-2.0

// psctl serve shows the dashboard of a run from the files that its servers have left in their
// folder. No server is needed. It takes no orders and writes nothing.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/http_server.h"

namespace lodestar::psctl {

// Makes the pages of `folder`, which is the --checkpoint_dir of the run's servers:
//   /             the dashboard
//   /api/history  curves and events of the run: see HistoryJson()
//   /api/events   server-sent events, which are sent when their data has changed:
//                 `history` has the curves and events, and `finished` has
//                 {"name", "folder", "written" (seconds since 1970),
//                 "is_held" (true: a server is running there), "trouble" (why the history
//                 cannot be read; empty if it can)}
// The pages of neighbour_pages.h are there as well. If a running server has not written its history
// yet, the pages wait for it. Errors:
// - NotFound, which names the runs below the folder: there is no folder, or it has neither a
//   history nor a running server.
// - FailedPrecondition: it is not a folder.
// - PermissionDenied: this user may not read the folder or the history.
// - Those of ReadHistoryUntouched(), except for Unavailable, which the pages show.
absl::StatusOr<http::HttpRoutes> KeptRunPages(const std::string& folder);

// Serves the pages at `http`, HOST:PORT, which must be a loopback address. Calls `say_url` with
// their URL, and returns once `wait` returns. Errors: those of KeptRunPages(); InvalidArgument
// (`http` is not such an address); Unavailable (the program cannot listen there).
absl::Status ServeKeptRun(const std::string& folder, const std::string& http,
                          const std::function<absl::Status(absl::string_view)>& say_url,
                          const std::function<void()>& wait);

}  // namespace lodestar::psctl
