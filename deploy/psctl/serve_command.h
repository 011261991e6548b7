// psctl serve: the dashboard of a run from what its servers have left in their folder, without a
// server. Nothing can be ordered, and nothing is written.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/http_server.h"

namespace lodestar {

// `folder`: --checkpoint_dir of the run's servers.
//   /             the dashboard
//   /api/history  curves and events of the run: see HistoryJson()
//   /api/events   server-sent events: `finished` when it has changed, {"name", "folder", "written"
//                 (seconds since 1970), "is_held" (a server is at work there after all), "trouble"
//                 (why the history cannot be read; empty: it can)}, and likewise `history`
// and those of neighbour_pages.h. Errors: NotFound (there is no such folder, or no history in it:
// with the runs that are below it), FailedPrecondition (it is no folder), PermissionDenied (folder
// or history are not for this user), those of ReadHistoryUntouched() but Unavailable, which the
// pages tell.
absl::StatusOr<HttpRoutes> KeptRunPages(const std::string& folder);

// Serves them at `http`, HOST:PORT on this machine, tells `say_url` where, and ends once `wait`
// returns. Errors: those of KeptRunPages(); InvalidArgument (`http` is no such address),
// Unavailable (it cannot be listened on).
absl::Status ServeKeptRun(const std::string& folder, const std::string& http,
                          const std::function<absl::Status(absl::string_view)>& say_url,
                          const std::function<void()>& wait);

}  // namespace lodestar
