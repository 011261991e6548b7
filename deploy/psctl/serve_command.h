// psctl serve: the dashboard of a run, made from what its servers have left in their folder,
// without a server. It takes no orders and writes nothing.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/http_server.h"

namespace lodestar {

// Makes the pages of `folder`, which is --checkpoint_dir of the run's servers:
//   /             the dashboard
//   /api/history  curves and events of the run: see HistoryJson()
//   /api/events   server-sent events: `history` when the history has changed, and `finished` when
//                 its own data has changed: {"name", "folder", "written" (seconds since 1970),
//                 "is_held" (a server is at work there after all), "trouble" (why the history
//                 cannot be read; empty if it can)}
// The pages of neighbour_pages.h are there as well. If a server at work has not written its history
// yet, the pages wait for it. Errors: NotFound (there is no such folder, or no history in it and no
// server at work: with the runs that are below it), FailedPrecondition (it is no folder),
// PermissionDenied (folder or history are not for this user). The errors of ReadHistoryUntouched()
// are returned as well, except for Unavailable, which the pages tell.
absl::StatusOr<HttpRoutes> KeptRunPages(const std::string& folder);

// Serves the pages at `http`, HOST:PORT on this machine, tells `say_url` where, and ends once
// `wait` returns. Errors: those of KeptRunPages(); InvalidArgument (`http` is no such address),
// Unavailable (the address cannot be listened on).
absl::Status ServeKeptRun(const std::string& folder, const std::string& http,
                          const std::function<absl::Status(absl::string_view)>& say_url,
                          const std::function<void()>& wait);

}  // namespace lodestar
